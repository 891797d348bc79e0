//! Who decides when an agent asks for a permission.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use serde_json::Value;
use subagents_seam::provider::BoxFuture;
use subagents_seam::{AgentId, Name, RunId};

use crate::question::Question;

/// What happens when an agent asks whether it may use a tool (`SPEC 18.3`). There is no human behind it unless a callback
/// brings one.
///
/// A refusal is in the result's details ([`Details::denied_calls`](subagents_seam::Details::denied_calls)), also of a run
/// that is a success.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Permission {
    /// Refuses: with the agent's option to reject once, so that it goes on and can say so; where there is none, with the
    /// outcome `cancelled`, which some agents take for the end of their turn. An option to reject always is never chosen: it
    /// would outlive the run.
    #[default]
    Reject,
    /// Allows: with the agent's option to allow once, else with one to allow always; where there is none, it refuses.
    Allow,
    /// Asks a callback: see [`Permission::ask`].
    Ask(Decide),
}

/// A callback that decides: see [`Permission::ask`].
#[derive(Clone)]
pub struct Decide(Arc<dyn Fn(PermissionRequest) -> BoxFuture<'static, Decision> + Send + Sync>);

impl fmt::Debug for Decide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decide")
    }
}

impl fmt::Debug for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reject => "Reject",
            Self::Allow => "Allow",
            Self::Ask(_) => "Ask",
        })
    }
}

impl Permission {
    /// Asks `decide`, which learns who asks, and for what.
    ///
    /// The agent waits for as long as it takes, within the deadlines of its run; an idle deadline goes on meanwhile. Of one
    /// run, 64 questions may be open at once; what is beyond is refused. When the run ends first, the future is dropped. A
    /// panic is a refusal.
    ///
    /// ```
    /// use subagents_acp::{Acp, Decision, Permission};
    ///
    /// let careful = Permission::ask(|request| async move {
    ///     match request.kind() {
    ///         "read" | "search" => Decision::Allow,
    ///         _ => Decision::reject(format!("{} may only read", request.provider())),
    ///     }
    /// });
    /// let agent = Acp::new("some-agent").permission(careful);
    /// # let _ = agent;
    /// ```
    pub fn ask<F, Fut>(decide: F) -> Self
    where
        F: Fn(PermissionRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Decision> + Send + 'static,
    {
        Self::Ask(Decide(Arc::new(move |request| Box::pin(decide(request)))))
    }
}

/// Who asks for a permission.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) run: RunId,
    pub(crate) agent: AgentId,
    pub(crate) provider: Name,
    pub(crate) label: Option<Name>,
    pub(crate) depth: u32,
    pub(crate) lineage: Arc<[RunId]>,
}

/// An agent's question whether it may use a tool.
///
/// `Debug` shows neither title nor input: they hold what the agent works on.
#[derive(Clone)]
pub struct PermissionRequest {
    asker: Arc<Asker>,
    tool: String,
    kind: String,
    title: Option<String>,
    input: Option<Value>,
    options: Vec<PermissionOption>,
}

/// One of the answers that an agent offers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermissionOption {
    /// What is sent back.
    pub id: String,
    /// What people see.
    pub name: String,
    /// Its meaning, as the protocol writes it: `allow_once`, `allow_always`, `reject_once`, `reject_always`, or something
    /// newer.
    pub kind: String,
}

impl fmt::Debug for PermissionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermissionRequest")
            .field("asker", &self.asker)
            .field("tool", &self.tool)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl PermissionRequest {
    pub(crate) fn new(asker: Arc<Asker>, question: &Question, tool: String) -> Self {
        Self {
            asker,
            tool,
            kind: question.kind.clone(),
            title: question.title.clone(),
            input: question.input.clone(),
            options: question.options.clone(),
        }
    }

    /// The run that asks.
    pub fn run_id(&self) -> RunId {
        self.asker.run
    }

    /// The agent that asks.
    pub fn agent_id(&self) -> AgentId {
        self.asker.agent
    }

    /// The provider that started it.
    pub fn provider(&self) -> &Name {
        &self.asker.provider
    }

    /// Its label, if it has one.
    pub fn label(&self) -> Option<&Name> {
        self.asker.label.as_ref()
    }

    /// How deep in the tree it stands.
    pub fn depth(&self) -> u32 {
        self.asker.depth
    }

    /// The runs above it, from its parent up to the one below the root. Empty where the root itself delegated.
    pub fn lineage(&self) -> &[RunId] {
        &self.asker.lineage
    }

    /// The tool, by its name where the agent tells one, else by its kind.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// What kind of tool it is, as the protocol writes it: `read`, `edit`, `delete`, `move`, `search`, `execute`, `think`,
    /// `fetch`, `other`, or something newer.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What the agent says the call does. Untrusted text of the agent's.
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// What the tool would be given, as the agent tells it.
    pub fn input(&self) -> Option<&Value> {
        self.input.as_ref()
    }

    /// The answers that the agent offers.
    pub fn options(&self) -> &[PermissionOption] {
        &self.options
    }
}

/// What a callback decides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// As [`Permission::Allow`] does: once, where that is offered.
    Allow,
    /// As [`Permission::Reject`] does, for this reason, which is told in the result.
    Reject(String),
    /// This one of the options that the agent offers, by its id. An id that it did not offer is a refusal.
    Select(String),
}

impl Decision {
    /// A refusal for this reason.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject(reason.into())
    }
}

impl Permission {
    /// The decision, where it needs nobody; otherwise the future of it. `request` is made for a callback only.
    pub(crate) fn decide(
        &self,
        request: impl FnOnce() -> PermissionRequest,
    ) -> Result<Decision, BoxFuture<'static, Decision>> {
        match self {
            Self::Reject => Ok(Decision::Reject("the permission policy is `reject`".to_owned())),
            Self::Allow => Ok(Decision::Allow),
            Self::Ask(decide) => {
                let (decide, request) = (decide.clone(), request());
                // The call itself may panic as well.
                let decided = async move { (decide.0)(request).await };
                Err(Box::pin(AssertUnwindSafe(decided).catch_unwind().map(|decision| {
                    decision.unwrap_or_else(|_| Decision::reject("the callback for permissions panicked"))
                })))
            }
        }
    }
}
