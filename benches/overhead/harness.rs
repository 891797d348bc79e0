//! How every peer is driven, all of them by the same code.
//!
//! Each measurement opens a runtime and a peer of its own, warms it up, measures, and closes both, so that no
//! peer finds another's actors or timers. The C library's heap lives as long as the process; it is told to keep
//! what it has, so that no peer pays for pages that the kernel clears ([`alloc::keep_heap`]). What is *not*
//! controlled: how earlier measurements split that heap (hence the peers take turns, in both directions); the
//! clock of the processor; whatever else the machine does.

use crate::alloc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// What every child answers.
pub(crate) const OK: &str = "ok";

/// How long a child stays.
#[derive(Clone, Copy)]
pub(crate) enum Hold {
    /// It answers at once.
    No,
    /// It answers when it is released, and is idle until then.
    UntilReleased,
    /// It is idle until it is cancelled, and nothing is held to release it.
    UntilCancelled,
}

/// A way to delegate, in the three steps that all ways have in common.
pub(crate) trait Peer: Clone + Send + Sync + 'static {
    const NAME: &'static str;
    type Run: Send + 'static;

    fn open() -> impl Future<Output = Self> + Send;
    fn start(&self, hold: Hold) -> impl Future<Output = Self::Run> + Send;
    /// Lets one held run go on. Which one is the peer's business, as long as `n` releases free `n` runs.
    fn release(&self, run: &mut Self::Run);
    /// The length of the answer.
    fn result(&self, run: &mut Self::Run) -> impl Future<Output = usize> + Send;
    /// Returns when the run is gone.
    fn dispose(&self, run: Self::Run) -> impl Future<Output = ()> + Send;
    /// Ends every run, all of them hung, and returns when they are gone.
    fn cancel_all(&self, runs: &mut [Self::Run]) -> impl Future<Output = ()> + Send;
    /// Takes a snapshot of the live tree, if there is one: how long that took, and how many nodes it has.
    fn snapshot(&self) -> Option<(Duration, usize)> {
        None
    }
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Start, result, dispose, one run after the other on a current-thread runtime: the median in nanoseconds.
pub(crate) fn sequential<P: Peer>(runs: u32) -> f64 {
    on(&current_thread(), async move {
        let peer = P::open().await;
        for _ in 0..runs / 4 {
            delegate(&peer).await;
        }
        let mut times = Vec::with_capacity(runs as usize);
        for _ in 0..runs {
            let began = Instant::now();
            delegate(&peer).await;
            times.push(began.elapsed());
        }
        peer.close().await;
        times.sort_unstable();
        nanoseconds(times[times.len() / 2])
    })
}

/// Allocations per start, result and dispose.
pub(crate) fn allocations<P: Peer>(runs: u32) -> f64 {
    on(&current_thread(), async move {
        let peer = P::open().await;
        for _ in 0..runs {
            delegate(&peer).await;
        }
        alloc::begin();
        for _ in 0..runs {
            delegate(&peer).await;
        }
        let counted = alloc::end();
        peer.close().await;
        counted.allocations / f64::from(runs)
    })
}

/// Bytes on the heap per idle run, of `runs` alive at once. The vector of handles is not counted.
pub(crate) fn bytes<P: Peer>(runs: u32) -> f64 {
    on(&current_thread(), async move {
        let peer = P::open().await;
        for _ in 0..1_000 {
            delegate(&peer).await;
        }
        let mut alive = Vec::with_capacity(runs as usize);
        alloc::begin();
        for _ in 0..runs {
            alive.push(peer.start(Hold::UntilCancelled).await);
        }
        idle().await;
        let counted = alloc::end();
        peer.cancel_all(&mut alive).await;
        drop(alive);
        peer.close().await;
        counted.live_bytes / f64::from(runs)
    })
}

/// What one of many runs costs, in nanoseconds: time on the clock over the number of runs.
pub(crate) struct Live {
    /// From the first start to the last dispose.
    pub(crate) total: f64,
    pub(crate) start: f64,
    pub(crate) settle: f64,
    pub(crate) dispose: f64,
}

/// `runs` alive at once, driven by 64 tasks on two workers: start all, release and await all, dispose all.
pub(crate) fn live<P: Peer>(runs: u32) -> Live {
    on(&two_workers(), async move {
        let peer = P::open().await;
        for _ in 0..2 {
            crowd(&peer, 2_000).await;
        }
        let live = crowd(&peer, runs).await;
        peer.close().await;
        live
    })
}

async fn crowd<P: Peer>(peer: &P, runs: u32) -> Live {
    const TASKS: u32 = 64;
    let barrier = Arc::new(Barrier::new(TASKS as usize + 1));
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for task in 0..TASKS {
        let (peer, barrier) = (peer.clone(), Arc::clone(&barrier));
        let share = (runs / TASKS + u32::from(task < runs % TASKS)) as usize;
        tasks.spawn(async move {
            let mut alive = Vec::with_capacity(share);
            for _ in 0..share {
                alive.push(peer.start(Hold::UntilReleased).await);
            }
            barrier.wait().await;
            for run in &mut alive {
                peer.release(run);
            }
            for run in &mut alive {
                assert_eq!(peer.result(run).await, OK.len());
            }
            barrier.wait().await;
            for run in alive {
                peer.dispose(run).await;
            }
        });
    }
    barrier.wait().await;
    let started = Instant::now();
    barrier.wait().await;
    let settled = Instant::now();
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a driving task ends");
    }
    let disposed = Instant::now();
    let per_run = |from: Instant, to: Instant| nanoseconds(to - from) / f64::from(runs);
    Live {
        total: per_run(began, disposed),
        start: per_run(began, started),
        settle: per_run(started, settled),
        dispose: per_run(settled, disposed),
    }
}

/// What it takes to look at many hung runs, and to end them, in nanoseconds per run.
pub(crate) struct Hung {
    pub(crate) cancel: f64,
    pub(crate) snapshot: Option<f64>,
}

/// Starts `runs` that never end, takes some snapshots, and cancels all at once, on two workers.
pub(crate) fn hung<P: Peer>(runs: u32) -> Hung {
    on(&two_workers(), async move {
        let peer = P::open().await;
        let mut alive = Vec::with_capacity(runs as usize);
        for _ in 0..runs {
            alive.push(peer.start(Hold::UntilCancelled).await);
        }
        idle().await;
        let mut snapshots = Vec::new();
        for _ in 0..5 {
            if let Some((took, nodes)) = peer.snapshot() {
                let nodes = u32::try_from(nodes).expect("no more nodes than a number of runs can be");
                assert!(nodes >= runs, "a snapshot shows every run: {nodes} of {runs}");
                snapshots.push(nanoseconds(took) / f64::from(nodes));
            }
        }
        snapshots.sort_unstable_by(f64::total_cmp);
        let began = Instant::now();
        peer.cancel_all(&mut alive).await;
        let took = began.elapsed();
        drop(alive);
        peer.close().await;
        Hung {
            cancel: nanoseconds(took) / f64::from(runs),
            snapshot: snapshots.get(snapshots.len() / 2).copied(),
        }
    })
}

async fn delegate<P: Peer>(peer: &P) {
    let mut run = peer.start(Hold::No).await;
    assert_eq!(peer.result(&mut run).await, OK.len());
    peer.dispose(run).await;
}

/// Until every task that was just started has come to rest.
async fn idle() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn two_workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Drives a scene as a task among the others: the thread that blocks on a runtime wakes in a way of its own.
fn on<T: Send + 'static>(runtime: &Runtime, scene: impl Future<Output = T> + Send + 'static) -> T {
    runtime.block_on(runtime.spawn(scene)).expect("the scene ends")
}
