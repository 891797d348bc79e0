//! A service with a toolbox, and a model that calls.

use serde_json::{Value, json};
use std::{future::IntoFuture, time::Duration};
use subagents_runtime::{Root, SubagentService};
use subagents_seam::{DynProvider, ToolContext, ToolError, ToolOutput};
use subagents_tool::{SubagentTool, Toolbox};

pub(crate) struct Host {
    pub(crate) service: SubagentService,
    pub(crate) toolbox: Toolbox,
    pub(crate) root: Root,
}

impl Host {
    /// With the provider `p`, and the tool `subagent` that delegates to it.
    pub(crate) fn of(provider: impl Into<DynProvider>) -> Self {
        Self::with(provider, SubagentTool::new("subagent", "p"))
    }

    pub(crate) fn with(provider: impl Into<DynProvider>, tool: SubagentTool) -> Self {
        let service = SubagentService::builder().provider("p", provider).build().unwrap();
        let toolbox = Toolbox::new(&service, [tool]).unwrap();
        let root = service.root(std::env::temp_dir()).unwrap();
        Self { service, toolbox, root }
    }

    pub(crate) fn cx(&self) -> ToolContext {
        ToolContext::new(&self.root, self.root.parent().token().child_token())
    }

    pub(crate) async fn call(&self, prompt: &str) -> Result<ToolOutput, ToolError> {
        self.call_in(self.cx(), prompt).await
    }

    pub(crate) async fn call_in(&self, cx: ToolContext, prompt: &str) -> Result<ToolOutput, ToolError> {
        let tool = self.toolbox.tool("subagent").expect("it is here");
        within(tool.call(cx, asked(prompt))).await
    }

    /// What a model reads of a call that failed.
    pub(crate) async fn error(&self, prompt: &str) -> String {
        self.call(prompt).await.expect_err("it fails").to_string()
    }

    pub(crate) async fn end(self) {
        assert!(within(self.service.shutdown(Duration::from_secs(10))).await.is_clean());
    }
}

pub(crate) fn asked(prompt: &str) -> Value {
    json!({"description": "a short task", "prompt": prompt})
}

pub(crate) async fn within<T>(wait: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), wait.into_future()).await.expect("it comes in time")
}
