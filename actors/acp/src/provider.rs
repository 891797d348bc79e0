//! How to run an agent, and its start.

use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use subagents_process::{Command, Exit, Host, Secrets, SpawnError};
use subagents_seam::schema::{DEFAULT_ATTEMPTS, SchemaAsk};
use subagents_seam::{
    AgentOption, Capabilities, FailureCode, Instant, Progress, ProviderFailure, StartContext, StartError,
    SubagentProvider, Waiting, bounded, sanitised,
};

use crate::agent::AgentInfo;
use crate::answer::Answer;
use crate::child::{AcpChild, Order};
use crate::connection::{Broken, Connection, LastWords};
use crate::handshake::{self, Refused, Wanted};
use crate::mcp::McpServer;
use crate::permission::{Asker, Permission};
use crate::turn::Turn;

/// As much of an answer is kept unless [`Acp::max_output`] says otherwise.
const MAX_OUTPUT: usize = 16 * 1024 * 1024;
/// As much may come in all unless [`Acp::max_total_output`] says otherwise.
const MAX_TOTAL_OUTPUT: u64 = 256 * 1024 * 1024;
/// As much of stderr is kept.
const STDERR_TAIL: usize = 8 * 1024;
/// How long the end of an agent that did not start may take.
const UNDO: Duration = Duration::from_secs(5);
/// The same of one whose start was cut short, which has to fit into the grace of a cancel.
const UNDO_QUICKLY: Duration = Duration::from_millis(1500);

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
#[derive(Clone)]
pub struct Acp {
    program: OsString,
    args: Vec<OsString>,
    pass_env: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: Option<PathBuf>,
    permission: Permission,
    mode: Option<String>,
    model: Option<String>,
    auth_method: Option<String>,
    mcp_servers: Vec<McpServer>,
    persona: bool,
    depth_limit: bool,
    schema_attempts: NonZeroU32,
    allow_empty: bool,
    max_output: usize,
    max_total_output: u64,
    /// From its first start on it holds what its children share, so that they come and go without it.
    host: Arc<OnceLock<Host>>,
}

// No values of `env`: they may be secrets, and a Debug output ends in logs.
impl fmt::Debug for Acp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Acp")
            .field("program", &self.program)
            .field("args", &self.args)
            .field("pass_env", &self.pass_env)
            .field("env", &env)
            .field("cwd", &self.cwd)
            .field("permission", &self.permission)
            .field("mode", &self.mode)
            .field("model", &self.model)
            .field("mcp_servers", &self.mcp_servers)
            .field("persona", &self.persona)
            .field("depth_limit", &self.depth_limit)
            .finish_non_exhaustive()
    }
}

impl Acp {
    /// Runs `program`: a path (a relative one is relative to the working directory), or a name that is looked for on the
    /// child's `PATH`. Most agents need an argument to speak the protocol, such as `--acp`.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            pass_env: Vec::new(),
            env: Vec::new(),
            cwd: None,
            permission: Permission::Reject,
            mode: None,
            model: None,
            auth_method: None,
            mcp_servers: Vec::new(),
            persona: false,
            depth_limit: false,
            schema_attempts: DEFAULT_ATTEMPTS,
            allow_empty: false,
            max_output: MAX_OUTPUT,
            max_total_output: MAX_TOTAL_OUTPUT,
            host: Arc::default(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Lets these variables reach the agent although their names look like secrets (`SPEC 17.3`). Their values are masked
    /// in what the agent says, from six bytes on.
    #[must_use]
    pub fn pass_env(mut self, names: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.pass_env.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the agent. `SUBAGENTS_DEPTH`, `SUBAGENTS_MAX_DEPTH` and `SUBAGENTS_SCOPE` are ours to set. A value
    /// whose name looks like a secret is masked in what the agent says, from six bytes on.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Runs the agent, and its session, in this directory, in place of the delegation's. Absolute (`SPEC 17.2`).
    #[must_use]
    pub fn cwd(mut self, path: impl Into<PathBuf>) -> Self {
        self.cwd = Some(path.into());
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
    /// What a start would say.
    pub fn check(&self, cwd: &Path) -> Result<PathBuf, ProviderFailure> {
        let command = self.command(cwd);
        command.check().map_err(|error| spawn_failure(error, &command.secrets()))
    }

    /// Starts the agent in `cwd`, makes a session, asks nothing, and ends it again: who it is, or the error that a
    /// delegation would have, an unfinished sign-in included. Agents take up to some seconds for it; give it a deadline.
    ///
    /// Dropping the future kills the agent.
    ///
    /// # Errors
    ///
    /// What a start would say.
    pub async fn probe(&self, cwd: &Path) -> Result<AgentInfo, ProviderFailure> {
        let place = Place { depth: 0, max_depth: None };
        let mut connection = self.connect(cwd, place, "a probe")?;
        let mut at = "initialize";
        let opened = self.open(&mut connection, cwd, place, self.model.as_deref(), &mut at).await;
        let told = match opened {
            Ok((agent, _)) => Ok(agent),
            Err(refused) => Err(self.explain(refused, &mut connection, cwd).await),
        };
        let _ = connection.end(Instant::now() + UNDO).await;
        told
    }

    fn command(&self, cwd: &Path) -> Command {
        Command::new(&self.program, self.cwd.as_deref().unwrap_or(cwd))
            .args(&self.args)
            .pass_env(&self.pass_env)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
    }

    /// Starts the process. `note` is for the ledger, where one is kept.
    fn connect(&self, cwd: &Path, place: Place, note: &str) -> Result<Connection, ProviderFailure> {
        if let (None, Ok(host)) = (self.host.get(), Host::current()) {
            // Whoever was faster has the same.
            let _ = self.host.set(host);
        }
        let command =
            self.command(cwd).stderr_tail(STDERR_TAIL).note(note).stdin_piped().envs(place.variables());
        let values = self.mcp_servers.iter().flat_map(McpServer::values);
        let secrets = command.secrets().and(Secrets::of(values));
        let process = command.spawn().map_err(|error| spawn_failure(error, &secrets))?;
        let program = bounded(&sanitised(&self.program.to_string_lossy()), 200);
        Ok(Connection::new(process, program, secrets, self.max_total_output))
    }

    /// From the process to the session.
    async fn open(
        &self,
        connection: &mut Connection,
        cwd: &Path,
        place: Place,
        model: Option<&str>,
        at: &mut &'static str,
    ) -> Result<(AgentInfo, String), Refused> {
        let command = self.command(cwd);
        let has_variable = |name: &str| command.variable(name).is_some_and(|value| !value.is_empty());
        let variables = place.variables();
        let wanted = Wanted {
            cwd: self.cwd.as_deref().unwrap_or(cwd),
            mcp_servers: self.mcp_servers.iter().map(|server| server.to_wire(&variables)).collect(),
            needs_http: self.mcp_servers.iter().find(|server| server.is_http()).map(McpServer::name),
            auth_method: self.auth_method.as_deref(),
            mode: self.mode.as_deref(),
            model,
            has_variable: &has_variable,
        };
        let agent = handshake::initialize(connection, at).await?;
        let session = handshake::open(connection, &agent, &wanted, at).await?;
        Ok((agent, session))
    }

    /// Why there is no session, with what the agent said last.
    async fn explain(&self, refused: Refused, connection: &mut Connection, cwd: &Path) -> ProviderFailure {
        let (asked, broken) = match refused {
            // Its own words are often not enough.
            Refused::Failed(failure) if failure.code() == FailureCode::ProviderFailed => {
                let words = connection.words_so_far().await;
                return ProviderFailure::new(failure.code(), format!("{failure}; {words}"));
            }
            Refused::Failed(failure) => return failure,
            Refused::Broken(asked, broken) => (asked, broken),
        };
        let words = connection.last_words().await;
        let program = connection.program();
        let (code, what) = match (broken, words.exit) {
            (Broken::Ended, Some(exit)) => {
                let advice = self.advice(exit, cwd);
                (
                    FailureCode::ExitedBeforeReady,
                    format!("{program} ended with {exit} before it answered {asked}{advice}"),
                )
            }
            (Broken::Ended, None) => (
                FailureCode::ProtocolError,
                format!("{program} closed its stdout before it answered {asked}, and is still running"),
            ),
            (broken, _) => {
                (FailureCode::ProtocolError, format!("{program} {broken} before it answered {asked}"))
            }
        };
        ProviderFailure::new(
            code,
            format!("{what}; command: {}; {words}", self.command_line(connection.secrets())),
        )
    }

    /// A shell, and what env(1) starts, say 127 where a program is not found.
    fn advice(&self, exit: Exit, cwd: &Path) -> String {
        if exit != Exit::Code(127) {
            return String::new();
        }
        let path = self.command(cwd).variable("PATH").unwrap_or_default();
        format!(" (something was not found on its PATH, which is {})", bounded(&path.to_string_lossy(), 500))
    }

    fn too_late(&self, at: &str, words: &LastWords, connection: &Connection) -> ProviderFailure {
        let text = format!(
            "no answer to {at}: see that {} speaks the Agent Client Protocol when it is started so; command: {}; {words}",
            connection.program(),
            self.command_line(connection.secrets())
        );
        ProviderFailure::new(FailureCode::ProtocolError, text)
    }

    /// The command as it was given. It holds no prompt.
    fn command_line(&self, secrets: &Secrets) -> String {
        let words = std::iter::once(&self.program).chain(&self.args).map(|word| word.to_string_lossy());
        let line = words.collect::<Vec<_>>().join(" ");
        bounded(&sanitised(&secrets.mask(&line)), 400)
    }
}

/// A child's place in the tree, which its environment tells it, so that depth survives the process border.
#[derive(Debug, Clone, Copy)]
struct Place {
    depth: u32,
    max_depth: Option<u32>,
}

impl Place {
    fn variables(self) -> Vec<(&'static str, String)> {
        let depth = ("SUBAGENTS_DEPTH", self.depth.to_string());
        let cap = self.max_depth.map(|cap| ("SUBAGENTS_MAX_DEPTH", cap.to_string()));
        std::iter::once(depth).chain(cap).collect()
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
        let ask = cx.output_schema().map(|schema| SchemaAsk::new(schema, self.schema_attempts)).transpose();
        let ask = ask.map_err(StartError::UnsupportedSchema)?;
        let place = Place { depth: cx.depth(), max_depth: cx.max_depth() };
        let label = cx.label().map(|label| format!("{label}, ")).unwrap_or_default();
        let note = format!("{label}run {} of {}", cx.run_id(), cx.provider());
        let mut connection = self.connect(cx.cwd(), place, &note)?;
        cx.progress(Progress::Process { pid: connection.pid(), program: connection.program() });
        cx.progress(Progress::Waiting(Some(Waiting::Other("a session".into()))));

        let asked = cx.agent_options().and_then(|options| options.model.as_deref());
        let model = asked.or(self.model.as_deref());
        let mut at = "initialize";
        let opened = tokio::select! {
            biased;
            opened = self.open(&mut connection, cx.cwd(), place, model, &mut at) => Some(opened),
            () = cx.cancelled() => None,
        };
        let (failure, patience) = match opened {
            Some(Ok((agent, session))) => {
                let order = Order {
                    prompt: cx.prompt().to_text(),
                    persona: cx.persona().cloned(),
                    ask,
                    permission: self.permission.clone(),
                    asker: Asker {
                        run: cx.run_id(),
                        agent: cx.agent_id(),
                        provider: cx.provider().clone(),
                        label: cx.label().cloned(),
                        depth: cx.depth(),
                        lineage: cx.lineage().into(),
                    },
                    max_output: self.max_output,
                };
                let turn = Turn::new(session, Answer::new(self.max_output, connection.secrets()));
                return Ok(AcpChild::new(connection, agent, turn, order));
            }
            Some(Err(refused)) => (self.explain(refused, &mut connection, cx.cwd()).await, UNDO),
            None => {
                let words = connection.words_so_far().await;
                (self.too_late(at, &words, &connection), UNDO_QUICKLY)
            }
        };
        // Nothing is left of it when the start is rejected (`SPEC 18.1`).
        if connection.end(Instant::now() + patience).await.is_leaked() {
            tracing::warn!(provider = %cx.provider(), "something is left of an agent whose start failed");
        }
        Err(failure.into())
    }
}

fn spawn_failure(error: SpawnError, secrets: &Secrets) -> ProviderFailure {
    let code = match &error {
        SpawnError::PromptTooLong { .. } => FailureCode::PromptTooLong,
        SpawnError::ProgramNotFound { .. } => FailureCode::ProgramNotFound,
        SpawnError::NotOnPath { .. } => FailureCode::NotOnPath,
        SpawnError::NotExecutable { .. } => FailureCode::NotExecutable,
        SpawnError::InterpreterNotFound { .. } => FailureCode::InterpreterNotFound,
        SpawnError::CwdNotUsable { .. } => FailureCode::CwdNotUsable,
        SpawnError::SpawnFailed { .. } | _ => FailureCode::SpawnFailed,
    };
    ProviderFailure::new(code, secrets.mask(&error.to_string())).with_source(error)
}
