//! The start of an agent: from the command to a session, and what is said where there is none.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use subagents_external::{Place, Program, failure};
use subagents_process::{Exit, Secrets};
use subagents_seam::schema::SchemaAsk;
use subagents_seam::{
    FailureCode, Instant, Progress, ProviderFailure, StartContext, StartError, Waiting, bounded, sanitised,
};

use crate::agent::AgentInfo;
use crate::answer::Answer;
use crate::child::{AcpChild, Order};
use crate::connection::{Broken, Connection, LastWords};
use crate::handshake::{self, Refused, Wanted};
use crate::mcp::McpServer;
use crate::permission::Asker;
use crate::provider::Acp;
use crate::turn::Turn;

/// As much of stderr is kept.
const STDERR_TAIL: usize = 8 * 1024;
/// How long the end of an agent that did not start may take.
const UNDO: Duration = Duration::from_secs(5);
/// The same of one whose start was cut short, which has to fit into the grace of a cancel.
const UNDO_QUICKLY: Duration = Duration::from_millis(1500);

impl Acp {
    /// Starts an agent for one delegation. Where it returns an error nothing is left of it (`SPEC 18.1`).
    pub(crate) async fn begin(&self, cx: &StartContext) -> Result<AcpChild, StartError> {
        let ask = cx.output_schema().map(|schema| SchemaAsk::new(schema, self.schema_attempts)).transpose();
        let ask = ask.map_err(StartError::UnsupportedSchema)?;
        let place = Place::of(cx);
        let mut connection = self.connect(cx.cwd(), place, &Program::note(cx))?;
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

    /// Starts an agent, asks who it is, and ends it.
    pub(crate) async fn ask_who(&self, cwd: &Path) -> Result<AgentInfo, ProviderFailure> {
        let place = Place::default();
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

    /// Starts the process. `note` is for the ledger, where one is kept.
    fn connect(&self, cwd: &Path, place: Place, note: &str) -> Result<Connection, ProviderFailure> {
        self.program.hold_host();
        let command = self.program.command(cwd).args(self.program.args()).stderr_tail(STDERR_TAIL).note(note);
        let command = command.stdin_piped().envs(place.variables());
        let values = self.mcp_servers.iter().flat_map(McpServer::values);
        let secrets = command.secrets().and(Secrets::of(values));
        let process = command.spawn().map_err(|error| failure(error, &secrets))?;
        let program = bounded(&sanitised(&self.program.name().to_string_lossy()), 200);
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
        let command = self.program.command(cwd);
        let has_variable = |name: &str| command.variable(name).is_some_and(|value| !value.is_empty());
        let variables = place.variables();
        let wanted = Wanted {
            cwd: self.program.directory(cwd),
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
        let path = self.program.command(cwd).variable("PATH").unwrap_or_default();
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
        let words =
            std::iter::once(self.program.name()).chain(self.program.args().iter().map(OsString::as_os_str));
        let line = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
        bounded(&sanitised(&secrets.mask(&line)), 400)
    }
}
