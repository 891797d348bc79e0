//! What the Agent Client Protocol costs: per delegation beside a program without it, per chunk of an answer beside the bare
//! lines, and acpx beside both where it is installed.
//!
//! `cargo bench -p subagents --bench acp` prints a table and, as its last line, the figures that the project holds itself
//! to; with `-- --quick` it is a smoke run whose figures mean little. The agent is this program, started again; each figure
//! is the median of rounds, in which all ways take turns. `SUBAGENTS_PEERS` names the folder that acpx is looked for in.
//! Whatever fails, an answer that is not whole included, ends it with an error.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark reports on its standard output")]

mod acpx;
mod agent;
mod pour;
mod stage;

use agent::Role;
use pour::Pour;
use rustix::time::{ClockId, clock_gettime};
use stage::{Failure, Stage, Way};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// As many delegations are under way at once, where they are not one after the other.
const AT_ONCE: usize = 8;

/// How much is measured.
struct Plan {
    rounds: usize,
    /// Delegations one after the other.
    sequence: usize,
    /// The same of acpx, which takes long.
    patience: usize,
    /// Delegations at once, in all.
    crowd: usize,
    /// Many small pieces.
    drops: Pour,
    /// Large ones.
    buckets: Pour,
}

impl Plan {
    const FULL: Self = Self {
        rounds: 7,
        sequence: 60,
        patience: 3,
        crowd: 160,
        drops: Pour { chunks: 100_000, bytes: 20 },
        buckets: Pour { chunks: 8_192, bytes: 4_096 },
    };
    const QUICK: Self = Self {
        rounds: 1,
        sequence: 5,
        patience: 1,
        crowd: 16,
        drops: Pour { chunks: 10_000, bytes: 20 },
        buckets: Pour { chunks: 1_024, bytes: 4_096 },
    };
}

/// One figure, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Figure {
    Prompt,
    Starts,
    StartsAtOnce,
    Chunk,
    ChunkCpu,
    Throughput,
}

impl Figure {
    const ALL: [Self; 6] =
        [Self::Prompt, Self::Starts, Self::StartsAtOnce, Self::Chunk, Self::ChunkCpu, Self::Throughput];

    fn title(self, plan: &Plan) -> String {
        match self {
            Self::Prompt => "start, session, prompt, result, gone [ms]".to_owned(),
            Self::Starts => "of these one after the other, per second".to_owned(),
            Self::StartsAtOnce => format!("of these {AT_ONCE} at once, per second"),
            Self::Chunk => {
                format!("per chunk of {} bytes, {} of them [ns]", plan.drops.bytes, plan.drops.chunks)
            }
            Self::ChunkCpu => "  this process's time on a processor [ns]".to_owned(),
            Self::Throughput => format!("text in chunks of {} bytes [MB/s]", plan.buckets.bytes),
        }
    }
}

/// What each figure was in each round.
#[derive(Default)]
struct Board(BTreeMap<(Figure, Way), Vec<f64>>);

impl Board {
    fn enter(&mut self, figure: Figure, way: Way, sample: f64) {
        self.0.entry((figure, way)).or_default().push(sample);
    }

    fn median(&self, figure: Figure, way: Way) -> Option<f64> {
        self.0.get(&(figure, way)).map(|samples| median(samples.clone()))
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// One thread for what comes one after the other, two for what comes at once; a stage on each.
struct Theatre {
    single: (Runtime, Arc<Stage>),
    double: (Runtime, Arc<Stage>),
}

impl Theatre {
    fn open() -> Result<Self, Failure> {
        let open = |mut builder: Builder| {
            let runtime = builder.enable_all().build()?;
            let stage = runtime.block_on(async { Stage::open() })?;
            Ok::<_, Failure>((runtime, Arc::new(stage)))
        };
        let mut two = Builder::new_multi_thread();
        two.worker_threads(2);
        Ok(Self { single: open(Builder::new_current_thread())?, double: open(two)? })
    }

    fn has(&self, way: Way) -> bool {
        self.single.1.has(way)
    }

    fn delegate(&self, way: Way, pour: Pour) -> Result<Duration, Failure> {
        self.single.0.block_on(self.single.1.delegate(way, pour))
    }

    /// Makes `count` delegations, some at once; says how many came per second.
    fn crowd(&self, way: Way, count: usize) -> Result<f64, Failure> {
        let (runtime, stage) = &self.double;
        runtime.block_on(async {
            let began = Instant::now();
            let mut tasks = JoinSet::new();
            for _ in 0..AT_ONCE {
                let stage = Arc::clone(stage);
                tasks.spawn(async move {
                    for _ in 0..count / AT_ONCE {
                        stage.delegate(way, Pour::ONE).await?;
                    }
                    Ok::<_, Failure>(())
                });
            }
            while let Some(ended) = tasks.join_next().await {
                ended??;
            }
            Ok(per_second(count / AT_ONCE * AT_ONCE, began.elapsed()))
        })
    }

    fn close(self) -> Result<(), Failure> {
        for (runtime, stage) in [self.single, self.double] {
            // After a failure a task of a crowd may have it still: the end of its runtime ends all that it has.
            if let Ok(stage) = Arc::try_unwrap(stage) {
                runtime.block_on(stage.close())?;
            }
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn count_of(things: usize) -> f64 {
    things as f64
}

fn per_second(count: usize, time: Duration) -> f64 {
    count_of(count) / time.as_secs_f64()
}

/// How long this process was on a processor, its calls to the system included.
fn on_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// All that is measured of one way in one round.
fn measure(plan: &Plan, theatre: &Theatre, way: Way, board: &mut Board) -> Result<(), Failure> {
    let count = if way == Way::Acpx { plan.patience } else { plan.sequence };
    // The first finds what is needed nowhere near.
    theatre.delegate(way, Pour::ONE)?;
    let (began, cpu) = (Instant::now(), on_cpu());
    let times = (0..count).map(|_| theatre.delegate(way, Pour::ONE)).collect::<Result<Vec<_>, _>>()?;
    let starts = per_second(count, began.elapsed());
    let times: Vec<_> = times.iter().map(Duration::as_secs_f64).collect();
    let (prompt, quickest) = (median(times.clone()), times.into_iter().fold(f64::INFINITY, f64::min));
    let prompt_cpu = on_cpu().saturating_sub(cpu).as_secs_f64() / count_of(count);
    if way != Way::AcpMasked {
        board.enter(Figure::Prompt, way, prompt * 1e3);
    }
    if matches!(way, Way::Acp | Way::Exec) {
        board.enter(Figure::Starts, way, starts);
        board.enter(Figure::StartsAtOnce, way, theatre.crowd(way, plan.crowd)?);
    }
    if way == Way::Exec {
        return Ok(());
    }
    // What a chunk adds: a process that is started and ended is no part of it. The quickest, which is never more than there
    // was of it.
    let cpu = on_cpu();
    let time = theatre.delegate(way, plan.drops)?.as_secs_f64() - quickest;
    let chunk = |seconds: f64| seconds * 1e9 / count_of(plan.drops.chunks);
    board.enter(Figure::Chunk, way, chunk(time));
    if way != Way::Acpx {
        board.enter(Figure::ChunkCpu, way, chunk(on_cpu().saturating_sub(cpu).as_secs_f64() - prompt_cpu));
    }
    let time = theatre.delegate(way, plan.buckets)?.as_secs_f64() - quickest;
    board.enter(Figure::Throughput, way, count_of(plan.buckets.text()) / time / 1e6);
    Ok(())
}

fn measure_all(plan: &Plan, theatre: &Theatre) -> Result<Board, Failure> {
    let mut board = Board::default();
    for round in 0..plan.rounds {
        let mut ways: Vec<_> = Way::ALL.into_iter().filter(|way| theatre.has(*way)).collect();
        // In both directions, so that none always comes after the same other.
        if round % 2 == 1 {
            ways.reverse();
        }
        for way in ways {
            measure(plan, theatre, way, &mut board)?;
        }
    }
    Ok(board)
}

fn print_table(plan: &Plan, board: &Board) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let (system, processor) = (std::env::consts::OS, std::env::consts::ARCH);
    println!("{system} {processor}, {cores} cores; median of {} rounds", plan.rounds);
    // The benchmark itself loads two cores: much more says that the figures are of a busy machine.
    if let Ok(load) = std::fs::read_to_string("/proc/loadavg") {
        println!("load over the last minutes: {}", load.trim());
    }
    print!("{:46}", "");
    for way in Way::ALL {
        print!("{:>13}", way.name());
    }
    println!();
    for figure in Figure::ALL {
        print!("{:46}", figure.title(plan));
        for way in Way::ALL {
            let sample =
                board.median(figure, way).map_or_else(|| "–".to_owned(), |sample| format!("{sample:.2}"));
            print!("{sample:>13}");
        }
        println!();
    }
}

/// The line that the project's goals are checked against.
fn figures(board: &Board) -> String {
    let of = |figure, way| board.median(figure, way).unwrap_or(f64::NAN);
    let acpx = match board.median(Figure::Prompt, Way::Acpx) {
        None => "acpx=absent".to_owned(),
        Some(prompt) => format!(
            "acpx_prompt_ms={prompt:.1} acpx_chunk_ns={:.0} acpx_mb_s={:.1}",
            of(Figure::Chunk, Way::Acpx),
            of(Figure::Throughput, Way::Acpx)
        ),
    };
    let (prompt, exec) = (of(Figure::Prompt, Way::Acp), of(Figure::Prompt, Way::Exec));
    format!(
        "acp: prompt_ms={prompt:.2} exec_ms={exec:.2} protocol_ms={:.2} chunk_ns={:.0} chunk_cpu_ns={:.0} \
         masked_chunk_ns={:.0} raw_chunk_ns={:.0} mb_s={:.1} raw_mb_s={:.1} starts_s={:.1} starts8_s={:.1} {acpx}",
        prompt - exec,
        of(Figure::Chunk, Way::Acp),
        of(Figure::ChunkCpu, Way::Acp),
        of(Figure::Chunk, Way::AcpMasked),
        of(Figure::Chunk, Way::Raw),
        of(Figure::Throughput, Way::Acp),
        of(Figure::Throughput, Way::Raw),
        of(Figure::Starts, Way::Acp),
        of(Figure::StartsAtOnce, Way::Acp),
    )
}

fn bench(plan: &Plan) -> Result<Board, Failure> {
    let theatre = Theatre::open()?;
    let board = measure_all(plan, &theatre);
    // Also after a failure: nothing is left of what it was about.
    let closed = theatre.close();
    board.and_then(|board| closed.map(|()| board))
}

fn main() -> ExitCode {
    if let Some(role) = Role::of(std::env::args().skip(1)) {
        return if role.play().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let asked = |argument| std::env::args().any(|given| given == argument);
    // `cargo test --all-targets` runs a benchmark as well, and says so by leaving this argument out.
    let quick = asked("--quick") || !asked("--bench");
    let plan = if quick { &Plan::QUICK } else { &Plan::FULL };
    match bench(plan) {
        Ok(board) => {
            print_table(plan, &board);
            if quick {
                println!("quick run: figures are not comparable");
            }
            println!("{}", figures(&board));
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("acp: {failure}");
            ExitCode::FAILURE
        }
    }
}
