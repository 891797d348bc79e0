//! *run*: this runtime as a user has it, through its public face, with everything on: the index, the events with
//! one subscriber, the token, the deadlines, supervision. The child does nothing.

use crate::harness::{Hold, OK, Peer};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use subagents::{
    CancelCause, Child, Content, ContentBlock, Deadlines, ResultError, Root, RunContext, StartContext,
    StartError, StartRequest, SubagentProvider, SubagentResult, SubagentRun, SubagentService,
};
use tokio::sync::oneshot;

const PROVIDER: &str = "no-op";
const HOUR: Duration = Duration::from_hours(1);

/// A service with one root. `WATCHED` is whether somebody listens to its events.
#[derive(Clone)]
pub(crate) struct Run<const WATCHED: bool>(Arc<Host>);

struct Host {
    service: SubagentService,
    root: Root,
    releases: Releases,
    hung: Arc<AtomicBool>,
}

pub(crate) struct Delegated {
    run: SubagentRun,
    release: Option<oneshot::Sender<()>>,
}

/// What held children wait for. Any child takes any of them, since as many are released as were made; so the
/// request carries nothing but what a user's request carries, and to find one costs no search.
#[derive(Clone, Default)]
struct Releases(Arc<Mutex<Vec<oneshot::Receiver<()>>>>);

impl Releases {
    fn lock(&self) -> MutexGuard<'_, Vec<oneshot::Receiver<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct NoOp {
    releases: Releases,
    /// Set while children are to stay until they are cancelled.
    hung: Arc<AtomicBool>,
}

enum NoOpChild {
    Ready,
    Hung,
    Held(oneshot::Receiver<()>),
}

impl SubagentProvider for NoOp {
    type Child = NoOpChild;

    async fn start(&self, _: StartContext) -> Result<NoOpChild, StartError> {
        if self.hung.load(Relaxed) {
            return Ok(NoOpChild::Hung);
        }
        Ok(self.releases.lock().pop().map_or(NoOpChild::Ready, NoOpChild::Held))
    }
}

impl Child for NoOpChild {
    async fn run(&mut self, cx: RunContext) -> Result<SubagentResult, ResultError> {
        match self {
            Self::Ready => {}
            Self::Hung => {
                cx.cancelled().await;
                return Ok(SubagentResult::aborted(Content::EMPTY));
            }
            Self::Held(release) => tokio::select! {
                biased;
                _ = release => {}
                () = cx.cancelled() => return Ok(SubagentResult::aborted(Content::EMPTY)),
            },
        }
        Ok(SubagentResult::completed(OK))
    }
}

impl<const WATCHED: bool> Peer for Run<WATCHED> {
    const NAME: &'static str = if WATCHED { "run" } else { "run, unwatched" };
    type Run = Delegated;

    #[expect(clippy::disallowed_methods, reason = "the subscriber's task is the host's, not the service's")]
    async fn open() -> Self {
        let (releases, hung) = (Releases::default(), Arc::new(AtomicBool::new(false)));
        let service = SubagentService::builder()
            .provider(PROVIDER, NoOp { releases: releases.clone(), hung: hung.clone() })
            .deadlines(Deadlines::new().total(HOUR))
            .build()
            .expect("a service");
        if WATCHED {
            let mut events = service.events();
            tokio::spawn(async move { while events.next().await.is_some() {} });
        }
        let root = service.root("/").expect("a root");
        Self(Arc::new(Host { service, root, releases, hung }))
    }

    async fn start(&self, hold: Hold) -> Delegated {
        let Host { service, root, releases, hung } = &*self.0;
        let release = match hold {
            Hold::No => None,
            Hold::UntilCancelled => {
                hung.store(true, Relaxed);
                None
            }
            Hold::UntilReleased => {
                let (release, released) = oneshot::channel();
                releases.lock().push(released);
                Some(release)
            }
        };
        let request = StartRequest::new(root, "Count the words of the page").label("count");
        let run = service.start(PROVIDER, request).await.expect("it starts");
        Delegated { run, release }
    }

    fn release(&self, run: &mut Delegated) {
        let _ = run.release.take().expect("held, and released once").send(());
    }

    async fn result(&self, run: &mut Delegated) -> usize {
        let result = run.run.result().await.expect("a result");
        result.output.blocks().iter().filter_map(ContentBlock::as_text).map(str::len).sum()
    }

    async fn dispose(&self, run: Delegated) {
        run.run.dispose().await.expect("nothing is left of it");
    }

    async fn cancel_all(&self, _: &mut [Delegated]) {
        self.0.root.cancel(CancelCause::REQUESTED);
        self.0.root.idle().await;
    }

    fn snapshot(&self) -> Option<(Duration, usize)> {
        let began = Instant::now();
        let tree = self.0.service.tree();
        let took = began.elapsed();
        Some((took, tree.nodes.len()))
    }

    async fn close(self) {
        let report = self.0.service.shutdown(Duration::from_secs(10)).await;
        assert!(report.is_clean(), "{report:?}");
    }
}
