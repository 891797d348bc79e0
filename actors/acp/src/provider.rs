//! How to run an agent.

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use subagents_external::Program;
use subagents_seam::schema::DEFAULT_ATTEMPTS;
use subagents_seam::{
    AgentOption, Capabilities, ProviderFailure, StartContext, StartError, SubagentProvider,
};

use crate::agent::AgentInfo;
use crate::child::AcpChild;
use crate::known::KnownAgent;
use crate::mcp::McpServer;
use crate::permission::Permission;

/// As much of an answer is kept unless [`Acp::max_output`] says otherwise.
const MAX_OUTPUT: usize = 16 * 1024 * 1024;
/// As much may come in all unless [`Acp::max_total_output`] says otherwise.
const MAX_TOTAL_OUTPUT: u64 = 256 * 1024 * 1024;

/// The provider for any agent that speaks the Agent Client Protocol, version 1, on its stdin and stdout (`SPEC 18`).
///
/// Each delegation is a process of its own with one session. It is published when the session is made, and ended with all
/// that descends from it (`SPEC 18.1`, `18.5`). The answer is the text of all the agent's messages (`SPEC 18.2`).
///
/// ```
/// use subagents_acp::{Acp, Permission};
///
/// let gemini = Acp::new("gemini").arg("--acp").pass_env(["GEMINI_API_KEY"]).permission(Permission::Reject);
/// # let _ = gemini;
/// ```
#[derive(Clone, Debug)]
pub struct Acp {
    pub(crate) program: Program,
    pub(crate) permission: Permission,
    pub(crate) mode: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) auth_method: Option<String>,
    pub(crate) known: Option<&'static KnownAgent>,
    pub(crate) mcp_servers: Vec<McpServer>,
    persona: bool,
    depth_limit: bool,
    pub(crate) schema_attempts: NonZeroU32,
    allow_empty: bool,
    pub(crate) max_output: usize,
    pub(crate) max_total_output: u64,
}

impl Acp {
    /// Runs `program`: a path (a relative one is relative to the working directory), or a name that is looked for on the
    /// child's `PATH`. Most agents need an argument to speak the protocol, such as `--acp`.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: Program::new(program),
            permission: Permission::Reject,
            mode: None,
            model: None,
            auth_method: None,
            known: None,
            mcp_servers: Vec::new(),
            persona: false,
            depth_limit: false,
            schema_attempts: DEFAULT_ATTEMPTS,
            allow_empty: false,
            max_output: MAX_OUTPUT,
            max_total_output: MAX_TOTAL_OUTPUT,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.program.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        args.into_iter().for_each(|arg| self.program.arg(arg));
        self
    }

    /// Lets these variables reach the agent although their names look like secrets (`SPEC 17.3`). Their values are masked
    /// in what the agent says, from six bytes on.
    #[must_use]
    pub fn pass_env(mut self, names: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        names.into_iter().for_each(|name| self.program.pass_env(name));
        self
    }

    /// Sets a variable of the agent. `SUBAGENTS_DEPTH`, `SUBAGENTS_MAX_DEPTH` and `SUBAGENTS_SCOPE` are ours to set. A value
    /// whose name looks like a secret is masked in what the agent says, from six bytes on.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.program.env(name, value);
        self
    }

    /// Runs the agent, and its session, in this directory, in place of the delegation's. Absolute (`SPEC 17.2`).
    #[must_use]
    pub fn cwd(mut self, path: impl Into<PathBuf>) -> Self {
        self.program.cwd(path);
        self
    }

    /// Who decides when the agent asks for a permission. By default everything is refused (`SPEC 18.3`).
    #[must_use]
    pub fn permission(mut self, permission: Permission) -> Self {
        self.permission = permission;
        self
    }

    /// The mode of each session, by the agent's own id, such as `plan` or `read-only`. One that the agent does not have
    /// fails the start, and names those that it has.
    #[must_use]
    pub fn mode(mut self, mode: impl Into<String>) -> Self {
        self.mode = Some(mode.into());
        self
    }

    /// The model of each session, by the agent's own id, unless a request asks for another. One that the agent does not
    /// have fails the start, and names those that it has.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// The way to sign in when the agent asks for it, by the agent's own id. By default the first that the agent's
    /// environment satisfies; where there is none, the start fails with `AUTH_REQUIRED` and names the ways.
    #[must_use]
    pub fn auth_method(mut self, id: impl Into<String>) -> Self {
        self.auth_method = Some(id.into());
        self
    }

    /// Says which of the known agents this is: it gets the variables of that agent's own sign-in, and, unless another
    /// mode is set, works in the mode in which that agent asks before it acts. For opencode that
    /// comes over what its user has configured, a `deny` too: what is denied there is asked here. What is configured for one of
    /// opencode's agents comes over this, also in a file of the working directory.
    #[must_use]
    pub fn known(mut self, agent: &'static KnownAgent) -> Self {
        self.known = Some(agent);
        self.pass_env(agent.pass_env)
    }

    /// Hands an MCP server to each session.
    #[must_use]
    pub fn mcp_server(mut self, server: McpServer) -> Self {
        self.mcp_servers.push(server);
        self
    }

    /// Whether a request may bring a persona, which goes ahead of the prompt as a block of its own: the protocol has no
    /// better place. By default a persona refuses the start.
    #[must_use]
    pub fn persona(mut self, persona: bool) -> Self {
        self.persona = persona;
        self
    }

    /// Whether a request may limit the depth. True says that this agent delegates through `subagents` alone, which takes
    /// its place in the tree from its environment; nothing else would keep to the limit.
    #[must_use]
    pub fn depth_limit(mut self, depth_limit: bool) -> Self {
        self.depth_limit = depth_limit;
        self
    }

    /// How often an agent is asked for an answer that matches an output schema, the first time included.
    #[must_use]
    pub fn schema_attempts(mut self, attempts: NonZeroU32) -> Self {
        self.schema_attempts = attempts;
        self
    }

    /// Whether a blank answer is an answer. By default it is an error of category `empty-answer`.
    #[must_use]
    pub fn allow_empty(mut self, allow: bool) -> Self {
        self.allow_empty = allow;
        self
    }

    /// Keeps at most `bytes` of an answer, in place of 16 MiB. What is beyond is read and counted, and the result's details
    /// say so.
    #[must_use]
    pub fn max_output(mut self, bytes: usize) -> Self {
        self.max_output = bytes;
        self
    }

    /// Ends an agent that writes more than `bytes` in all, its protocol included, in place of 256 MiB: it settles as an error
    /// of category `output-limit`, with what was kept of its answer.
    #[must_use]
    pub fn max_total_output(mut self, bytes: u64) -> Self {
        self.max_total_output = bytes;
        self
    }

    /// Whether a delegation in `cwd` could start, as far as that can be known without starting it: the file that would be
    /// run. It looks a few files up, starts nothing, and needs no runtime.
    ///
    /// # Errors
    ///
    /// What a start would say of it.
    pub fn check(&self, cwd: &Path) -> Result<PathBuf, ProviderFailure> {
        self.speakable(cwd)?;
        self.program.check(cwd, self.program.args())
    }

    /// Starts the agent in `cwd`, makes a session, asks nothing, and ends it again within `patience` and the time that its end
    /// takes: who it is, or the error that a delegation would have, an unfinished sign-in included. It is handed no MCP
    /// servers, and signs in only by what its environment satisfies: nobody is asked anything. One that wants a sign-in for which a
    /// [method](Self::auth_method) is set is taken to be able to. Agents take up to some seconds.
    ///
    /// Dropping the future kills the agent.
    ///
    /// # Errors
    ///
    /// What a start would say, as far as it can be known so.
    pub async fn probe(&self, cwd: &Path, patience: Duration) -> Result<AgentInfo, ProviderFailure> {
        self.ask_who(cwd, patience).await
    }
}

impl SubagentProvider for Acp {
    type Child = AcpChild;

    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::NONE.with_output_schema().with_agent_option(AgentOption::Model);
        if self.persona {
            can = can.with_persona();
        }
        if self.depth_limit {
            can = can.with_depth_limit();
        }
        can
    }

    fn allows_blank_answer(&self) -> bool {
        self.allow_empty
    }

    async fn start(&self, cx: StartContext) -> Result<AcpChild, StartError> {
        self.begin(&cx).await
    }
}
