//! What a delegation costs through this runtime, beside a plain task and beside a bare registry of actors.
//!
//! `cargo bench -p subagents --bench overhead` prints a table of absolute figures and, as its last line, the ratios that
//! the project holds itself to. `OVERHEAD_1M=1` adds a million runs alive at once (some ten gigabytes of
//! memory); `OVERHEAD_TRIM=1` leaves the heap as the C library has it, which gives memory back to the kernel;
//! `OVERHEAD_QUICK=1` asks for a smoke run whose figures mean nothing.
#![expect(clippy::print_stdout, reason = "a benchmark reports on its standard output")]

mod alloc;
mod floor;
mod harness;
mod run;
mod task;

use floor::Floor;
use harness::{Hung, Live, Peer};
use run::Run;
use std::collections::HashMap;
use std::thread::available_parallelism;
use task::Task;

/// How much is measured.
struct Plan {
    repetitions: usize,
    /// Runs one after the other, per repetition and round.
    sequence: u32,
    /// Rounds of the short scenes per repetition; a round is one sample.
    rounds: usize,
    crowd: u32,
    small_crowd: u32,
    million: Option<u32>,
}

impl Plan {
    const FULL: Self = Self {
        repetitions: 7,
        sequence: 20_000,
        rounds: 3,
        crowd: 100_000,
        small_crowd: 10_000,
        million: None,
    };
    const QUICK: Self =
        Self { repetitions: 3, sequence: 2_000, rounds: 1, crowd: 10_000, small_crowd: 1_000, million: None };
}

/// One figure of the table, in the order of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Figure {
    Sequential,
    Allocations,
    Bytes,
    SmallCrowd,
    Crowd,
    CrowdStart,
    CrowdSettle,
    CrowdDispose,
    Million,
    Cancel,
    Snapshot,
}

impl Figure {
    const ALL: [Self; 11] = [
        Self::Sequential,
        Self::Allocations,
        Self::Bytes,
        Self::SmallCrowd,
        Self::Crowd,
        Self::CrowdStart,
        Self::CrowdSettle,
        Self::CrowdDispose,
        Self::Million,
        Self::Cancel,
        Self::Snapshot,
    ];

    fn title(self, plan: &Plan) -> String {
        match self {
            Self::Sequential => "start, result, dispose [ns]".to_owned(),
            Self::Allocations => "allocations of that".to_owned(),
            Self::Bytes => format!("heap per idle run, {} alive [bytes]", plan.crowd),
            Self::SmallCrowd => format!("{} alive, per run [ns]", plan.small_crowd),
            Self::Crowd => format!("{} alive, per run [ns]", plan.crowd),
            Self::CrowdStart => "  of that: start".to_owned(),
            Self::CrowdSettle => "  of that: release and result".to_owned(),
            Self::CrowdDispose => "  of that: dispose".to_owned(),
            Self::Million => "1000000 alive, per run [ns]".to_owned(),
            Self::Cancel => format!("{} hung, cancel all, per run [ns]", plan.crowd),
            Self::Snapshot => format!("snapshot of {} runs, per node [ns]", plan.crowd),
        }
    }
}

/// A peer as the schedule sees it: its scenes, and what they gave so far.
struct Contender {
    name: &'static str,
    sequential: fn(u32) -> f64,
    allocations: fn(u32) -> f64,
    bytes: fn(u32) -> f64,
    live: fn(u32) -> Live,
    hung: fn(u32) -> Hung,
    samples: HashMap<Figure, Vec<f64>>,
}

impl Contender {
    fn of<P: Peer>() -> Self {
        Self {
            name: P::NAME,
            sequential: harness::sequential::<P>,
            allocations: harness::allocations::<P>,
            bytes: harness::bytes::<P>,
            live: harness::live::<P>,
            hung: harness::hung::<P>,
            samples: HashMap::new(),
        }
    }

    fn sorted(&self, figure: Figure) -> Option<Vec<f64>> {
        let mut samples = self.samples.get(&figure)?.clone();
        samples.sort_unstable_by(f64::total_cmp);
        Some(samples)
    }

    fn median(&self, figure: Figure) -> f64 {
        self.sorted(figure).map_or(f64::NAN, |samples| samples[samples.len() / 2])
    }
}

/// Lets the peers take turns, in one direction and then in the other, so that none always finds the heap as
/// the same other one left it. A first turn, in which the heap grows to its size, is not recorded.
fn take_turns(times: usize, contenders: &mut [Contender], scene: impl Fn(&Contender) -> Vec<(Figure, f64)>) {
    for turn in 0..=times {
        for position in 0..contenders.len() {
            let position = if turn % 2 == 0 { position } else { contenders.len() - 1 - position };
            let contender = &mut contenders[position];
            let samples = scene(contender);
            if turn > 0 {
                for (figure, sample) in samples {
                    contender.samples.entry(figure).or_default().push(sample);
                }
            }
        }
    }
}

fn measure(plan: &Plan, contenders: &mut [Contender]) {
    let (long, short) = (plan.repetitions, plan.repetitions * plan.rounds);
    take_turns(short, contenders, |it| vec![(Figure::Sequential, (it.sequential)(plan.sequence))]);
    // The last is there to tell what the subscriber costs, and only for that.
    let Some((_, contenders)) = contenders.split_last_mut() else { return };
    take_turns(long, contenders, |it| vec![(Figure::Allocations, (it.allocations)(plan.sequence))]);
    take_turns(long, contenders, |it| vec![(Figure::Bytes, (it.bytes)(plan.crowd))]);
    // Small and large in the same turn: growth compares the two, and the machine may be slower in a minute.
    take_turns(long, contenders, |it| {
        let mut samples: Vec<_> =
            (0..plan.rounds).map(|_| (Figure::SmallCrowd, (it.live)(plan.small_crowd).total)).collect();
        let live = (it.live)(plan.crowd);
        samples.extend([
            (Figure::Crowd, live.total),
            (Figure::CrowdStart, live.start),
            (Figure::CrowdSettle, live.settle),
            (Figure::CrowdDispose, live.dispose),
        ]);
        samples
    });
    take_turns(short, contenders, |it| {
        let hung = (it.hung)(plan.crowd);
        let snapshot = hung.snapshot.map(|snapshot| (Figure::Snapshot, snapshot));
        [(Figure::Cancel, hung.cancel)].into_iter().chain(snapshot).collect()
    });
    if let Some(million) = plan.million {
        take_turns(long, contenders, |it| vec![(Figure::Million, (it.live)(million).total)]);
    }
}

fn print_table(plan: &Plan, heap_kept: bool, contenders: &[Contender]) {
    let cores = available_parallelism().map_or(0, usize::from);
    println!(
        "{} {}, {cores} cores, {} allocator{}; min / median of {} repetitions ({} of the short scenes)",
        std::env::consts::OS,
        std::env::consts::ARCH,
        alloc::NAME,
        if heap_kept { ", which keeps its heap" } else { "" },
        plan.repetitions,
        plan.repetitions * plan.rounds,
    );
    // The benchmark itself loads up to two cores: much more says that the figures are of a busy machine.
    if let Ok(load) = std::fs::read_to_string("/proc/loadavg") {
        println!("load over the last minutes: {}", load.trim());
    }
    print!("{:42}", "");
    for contender in contenders {
        print!("{:>21}", contender.name);
    }
    println!();
    for figure in Figure::ALL {
        let columns: Vec<_> = contenders.iter().map(|it| it.sorted(figure)).collect();
        if columns.iter().all(Option::is_none) {
            continue;
        }
        print!("{:42}", figure.title(plan));
        for column in columns {
            match column {
                Some(samples) => print!("{:>11.1} /{:>8.1}", samples[0], samples[samples.len() / 2]),
                None => print!("{:>21}", "–"),
            }
        }
        println!();
    }
}

/// The line that the project's goals are checked against: medians of *run*, over those of *floor* or of itself.
fn ratios(floor: &Contender, run: &Contender, unwatched: &Contender) -> String {
    let over_floor = |figure| format!("{:.2}", run.median(figure) / floor.median(figure));
    let million = match over_floor(Figure::Million).as_str() {
        "NaN" => String::new(),
        ratio => format!(" live_1m={ratio}"),
    };
    let growth = run.median(Figure::Crowd) / run.median(Figure::SmallCrowd);
    let watched = run.median(Figure::Sequential);
    let events = (watched - unwatched.median(Figure::Sequential)) / watched * 100.0;
    format!(
        "ratios sequential={} live_100k={}{million} bytes_100k={} cancel_100k={} growth={growth:.2} | \
         allocs_per_run={:.1} snapshot_ns_per_node={:.1} events_share={events:.1}%",
        over_floor(Figure::Sequential),
        over_floor(Figure::Crowd),
        over_floor(Figure::Bytes),
        over_floor(Figure::Cancel),
        run.median(Figure::Allocations),
        run.median(Figure::Snapshot),
    )
}

fn main() {
    let asked = |variable| std::env::var(variable).is_ok_and(|value| value == "1");
    // `cargo test --all-targets` runs a benchmark as well, and says so by leaving this argument out.
    let bench = std::env::args().any(|argument| argument == "--bench");
    let quick = asked("OVERHEAD_QUICK") || !bench;
    let mut plan = if quick { Plan::QUICK } else { Plan::FULL };
    if asked("OVERHEAD_1M") && !quick {
        plan.million = Some(1_000_000);
    }

    let heap_kept = !asked("OVERHEAD_TRIM") && alloc::keep_heap();
    let mut contenders = [
        Contender::of::<Task>(),
        Contender::of::<Floor>(),
        Contender::of::<Run<true>>(),
        Contender::of::<Run<false>>(),
    ];
    measure(&plan, &mut contenders);
    print_table(&plan, heap_kept, &contenders);
    if quick {
        println!("quick run: figures are not comparable");
    }
    let [_, floor, run, unwatched] = &contenders;
    println!("{}", ratios(floor, run, unwatched));
}
