//! A service with one scripted agent in it, whose processes are found again.

use super::Script;
use crate::processes::{Mark, VARIABLE};
use std::{sync::Arc, time::Duration};
use subagents::{
    Acp, DelegateError, Root, StartError, StartRequest, SubagentResult, SubagentRun, SubagentService,
};
use tokio::time::timeout;

/// Nothing here takes that long; what does has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Host {
    pub(crate) service: SubagentService,
    pub(crate) root: Root,
    pub(crate) mark: Mark,
}

impl Host {
    /// With the provider `agent`, which plays this script.
    pub(crate) fn of(script: &Script) -> Self {
        Self::with(script.acp())
    }

    pub(crate) fn with(acp: Acp) -> Self {
        let mark = Mark::fresh();
        let acp = acp.env(VARIABLE, mark.value());
        let service = SubagentService::builder().provider("agent", acp).build().expect("a service");
        let root = service.root(std::env::temp_dir()).expect("a root");
        Self { service, root, mark }
    }

    pub(crate) fn ask(&self, prompt: &str) -> StartRequest {
        StartRequest::new(&self.root, prompt)
    }

    /// The result of one delegation.
    pub(crate) async fn delegate(&self, prompt: &str) -> Arc<SubagentResult> {
        self.delegated(self.ask(prompt)).await
    }

    pub(crate) async fn delegated(&self, request: StartRequest) -> Arc<SubagentResult> {
        within("a result", self.service.delegate("agent", request)).await.expect("a clean delegation")
    }

    pub(crate) async fn start(&self) -> SubagentRun {
        within("a start", self.service.start("agent", self.ask("x"))).await.expect("it starts")
    }

    /// Why a start fails.
    pub(crate) async fn refusal(&self, request: StartRequest) -> StartError {
        match within("a refusal", self.service.delegate("agent", request)).await {
            Err(DelegateError::Start(error)) => error,
            other => unreachable!("it did not fail to start: {other:?}"),
        }
    }

    /// Shuts down, and says that nothing is left.
    pub(crate) async fn end(self) {
        let report = within("the shutdown", self.service.shutdown(PATIENCE)).await;
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(self.mark.alive(), [""; 0]);
    }
}

/// What came of one delegation to an agent that plays this script; nothing is left of it.
pub(crate) async fn played(script: &Script) -> Arc<SubagentResult> {
    let host = Host::of(script);
    let result = host.delegate("x").await;
    host.end().await;
    result
}

/// The category of what went wrong.
pub(crate) fn category(result: &SubagentResult) -> &str {
    result.diagnostic.as_ref().map_or("", |diagnostic| diagnostic.category())
}

/// Waits for what must come.
pub(crate) async fn within<T>(what: &str, wait: impl IntoFuture<Output = T>) -> T {
    timeout(PATIENCE, wait).await.map_err(|_| format!("waited in vain for {what}")).expect("it comes in time")
}
