//! *task*: a plain tokio task with a oneshot. What delegating costs when nobody looks after it.

use crate::harness::{Hold, OK, Peer};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

#[derive(Clone)]
pub(crate) struct Task;

pub(crate) struct Spawned {
    task: JoinHandle<()>,
    release: Option<oneshot::Sender<()>>,
    result: Option<oneshot::Receiver<String>>,
}

impl Peer for Task {
    const NAME: &'static str = "task";
    type Run = Spawned;

    async fn open() -> Self {
        Self
    }

    #[expect(clippy::disallowed_methods, reason = "an unowned task is what this peer stands for")]
    async fn start(&self, hold: Hold) -> Spawned {
        let (settle, result) = oneshot::channel();
        let (release, task) = match hold {
            Hold::No => {
                let work = async move {
                    let _ = settle.send(OK.to_owned());
                };
                (None, tokio::spawn(work))
            }
            Hold::UntilReleased | Hold::UntilCancelled => {
                let (release, released) = oneshot::channel::<()>();
                let work = async move {
                    let _ = released.await;
                    let _ = settle.send(OK.to_owned());
                };
                (Some(release), tokio::spawn(work))
            }
        };
        Spawned { task, release, result: Some(result) }
    }

    fn release(&self, run: &mut Spawned) {
        let _ = run.release.take().expect("held, and released once").send(());
    }

    async fn result(&self, run: &mut Spawned) -> usize {
        run.result.take().expect("asked once").await.expect("the task sends").len()
    }

    async fn dispose(&self, run: Spawned) {
        run.task.await.expect("the task ends by itself");
    }

    async fn cancel_all(&self, runs: &mut [Spawned]) {
        for run in &*runs {
            run.task.abort();
        }
        for run in runs {
            assert!((&mut run.task).await.expect_err("the task is hung").is_cancelled());
        }
    }

    async fn close(self) {}
}
