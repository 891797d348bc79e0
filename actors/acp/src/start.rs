//! The start of an agent: from the command to a session, and what is said where there is none.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use agent_client_protocol_schema::v1::CloseSessionRequest;
use subagents_external::{Place, Program, failure};
use subagents_process::{Exit, Secrets};
use subagents_seam::schema::SchemaAsk;
use subagents_seam::{
    FailureCode, Instant, Progress, ProviderFailure, StartContext, StartError, Waiting, bounded, sanitised,
};
use tokio::time::timeout;

use crate::agent::AgentInfo;
use crate::answer::Answer;
use crate::child::{AcpChild, Order};
use crate::connection::{Broken, Connection, LastWords};
use crate::failure::each_text;
use crate::handshake::{self, Refused, Wanted};
use crate::mcp::McpServer;
use crate::permission::{Asker, Permission};
use crate::provider::Acp;
use crate::sign_in;
use crate::turn::Turn;

/// How much of stderr a diagnostic can hold beside its own words.
const STDERR_TAIL: usize = 2 * 1024;
/// How long the end of an agent that did not start may take: within the grace of a cancel.
const UNDO: Duration = Duration::from_millis(1500);

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
        let failure = match opened {
            Some(Ok((agent, session))) => {
                let has_variable = |name: &str| self.has_variable(cx.cwd(), name);
                let way = sign_in::way(agent.auth_methods(), self.auth_method.as_deref(), &has_variable);
                let secrets = connection.secrets().clone();
                let masked = secrets.clone();
                // A value, read, may have a secret in it that its text had not.
                let ask = ask.map(|ask| {
                    ask.cleaned_by(move |value| each_text(&value, &|text| masked.mask(text).into_owned()))
                });
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
                    sign_in: way.map(str::to_owned),
                    sign_in_hint: self.known.map(|known| known.sign_in),
                    program: self.program.clone(),
                    cwd: cx.cwd().to_owned(),
                };
                let turn = Turn::new(session, Answer::new(self.max_output, &secrets), secrets);
                return Ok(AcpChild::new(connection, agent, turn, order));
            }
            Some(Err(refused)) => self.explain(refused, at, &mut connection, cx.cwd()).await,
            None => {
                // There is no time for manners, and nothing to lose: there was no prompt.
                let words = connection.words_so_far().await;
                connection.kill();
                self.too_late(at, &words, &connection)
            }
        };
        // Nothing is left of it when the start is rejected (`SPEC 18.1`).
        if connection.end(Instant::now() + UNDO).await.is_leaked() {
            tracing::warn!(provider = %cx.provider(), "something is left of an agent whose start failed");
        }
        Err(failure.into())
    }

    /// Starts an agent, asks who it is, and ends it.
    pub(crate) async fn ask_who(&self, cwd: &Path, patience: Duration) -> Result<AgentInfo, ProviderFailure> {
        // Nobody is to be asked anything, and nothing to be started beside the agent.
        let mut quiet = self.clone();
        quiet.mcp_servers.clear();
        quiet.auth_method = None;
        let place = Place::default();
        let mut connection = quiet.connect(cwd, place, "asked who it is")?;
        let mut at = "initialize";
        let mut who = None;
        let opening = async {
            let agent = who.insert(handshake::initialize(&mut connection, &mut at).await?);
            // A session without them would say nothing of it.
            handshake::connects(&connection, agent, self.needs_http())?;
            let session =
                quiet.session(&mut connection, agent, cwd, place, self.model.as_deref(), &mut at).await?;
            Ok((agent.clone(), session))
        };
        let told = match timeout(patience, opening).await {
            // How it signs in is configured, and not tried here: it may ask a person.
            Ok(Err(Refused::Failed(failure)))
                if failure.code() == FailureCode::AuthRequired
                    && self
                        .auth_method
                        .as_deref()
                        .is_some_and(|id| who.as_ref().is_some_and(|who| who.has(id))) =>
            {
                who.ok_or(failure)
            }
            Ok(Ok((agent, session))) => {
                if agent.closes_sessions() {
                    let asked = connection.request("session/close", CloseSessionRequest::new(session));
                    connection.drain(Instant::now() + UNDO, asked).await;
                }
                Ok(agent)
            }
            Ok(Err(refused)) => Err(quiet.explain(refused, at, &mut connection, cwd).await),
            Err(_) => {
                let words = connection.words_so_far().await;
                Err(quiet.too_late(at, &words, &connection))
            }
        };
        if connection.end(Instant::now() + UNDO).await.is_leaked() {
            tracing::warn!("something is left of an agent that was asked who it is");
        }
        told
    }

    /// The protocol has no way to say a directory that is no text.
    pub(crate) fn speakable(&self, cwd: &Path) -> Result<(), ProviderFailure> {
        let directory = self.program.directory(cwd);
        directory.to_str().map(drop).ok_or_else(|| {
            let text = format!(
                "the working directory {} is not UTF-8, which the Agent Client Protocol needs; use another",
                directory.display()
            );
            ProviderFailure::new(FailureCode::CwdNotUsable, text)
        })
    }

    fn has_variable(&self, cwd: &Path, name: &str) -> bool {
        self.program.command(cwd).variable(name).is_some_and(|value| !value.is_empty())
    }

    /// Starts the process. `note` is for the ledger, where one is kept.
    fn connect(&self, cwd: &Path, place: Place, note: &str) -> Result<Connection, ProviderFailure> {
        self.speakable(cwd)?;
        self.program.hold_host();
        let command = self.program.command(cwd).args(self.program.args()).stderr_tail(STDERR_TAIL).note(note);
        let asking = self.known.filter(|_| !matches!(self.permission, Permission::Allow));
        // What somebody has set, here or on the host, holds.
        let asking = asking
            .into_iter()
            .flat_map(|known| known.asking_env)
            .filter(|(name, _)| !self.has_variable(cwd, name));
        let command = command.envs(asking.copied()).stdin_piped().envs(place.variables());
        let values = self.mcp_servers.iter().flat_map(McpServer::values);
        let secrets = command.secrets().and(Secrets::of(values));
        let process = command.spawn().map_err(|error| failure(error, &secrets))?;
        let program = bounded(&sanitised(&self.program.name().to_string_lossy()), 200);
        Ok(Connection::new(process, program, secrets, self.max_total_output))
    }

    /// The MCP server that the agent has to connect to, if there is one.
    fn needs_http(&self) -> Option<&str> {
        self.mcp_servers.iter().find(|server| server.is_http()).map(McpServer::name)
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
        let agent = handshake::initialize(connection, at).await?;
        handshake::connects(connection, &agent, self.needs_http())?;
        let session = self.session(connection, &agent, cwd, place, model, at).await?;
        Ok((agent, session))
    }

    async fn session(
        &self,
        connection: &mut Connection,
        agent: &AgentInfo,
        cwd: &Path,
        place: Place,
        model: Option<&str>,
        at: &mut &'static str,
    ) -> Result<String, Refused> {
        let has_variable = |name: &str| self.has_variable(cwd, name);
        let variables = place.variables();
        let wanted = Wanted {
            cwd: self.program.directory(cwd),
            mcp_servers: self.mcp_servers.iter().map(|server| server.to_wire(&variables)).collect(),
            auth_method: self.auth_method.as_deref(),
            sign_in_hint: self.known.map(|known| known.sign_in),
            asking_mode: self.known.and_then(|known| known.asking_mode),
            mode: self.mode.as_deref(),
            model,
            has_variable: &has_variable,
        };
        handshake::open(connection, agent, &wanted, at).await
    }

    /// Why there is no session, with what the agent said last.
    async fn explain(
        &self,
        refused: Refused,
        at: &str,
        connection: &mut Connection,
        cwd: &Path,
    ) -> ProviderFailure {
        let failure = self.explained(refused, connection, cwd).await;
        let withheld = self.program.withheld(&failure.to_string(), cwd);
        match withheld.or_else(|| self.started_otherwise(failure.code(), at)) {
            Some(advice) => ProviderFailure::new(failure.code(), format!("{failure}; {advice}")),
            None => failure,
        }
    }

    /// How a known agent is started, where this one is not and does not speak the protocol.
    fn started_otherwise(&self, code: FailureCode, at: &str) -> Option<String> {
        let known = self.known?;
        let (program, args) = known.command.split_first()?;
        let is_so = args.iter().all(|arg| self.program.args().iter().any(|given| given == arg));
        let failed = matches!(code, FailureCode::ExitedBeforeReady | FailureCode::ProtocolError);
        let silent = failed && at == "initialize";
        (silent && !is_so).then(|| format!("{program} speaks the protocol as `{}`", known.command.join(" ")))
    }

    async fn explained(&self, refused: Refused, connection: &mut Connection, cwd: &Path) -> ProviderFailure {
        let (asked, broken) = match refused {
            // Its own words are often not enough.
            Refused::Failed(failure) if failure.code() == FailureCode::ProviderFailed => {
                let words = connection.words_so_far().await;
                if words.is_empty() {
                    return failure;
                }
                return ProviderFailure::new(failure.code(), format!("{failure}; {words}"));
            }
            Refused::Failed(failure) => return failure,
            Refused::Broken(asked, broken) => (asked, broken),
        };
        let words = connection.last_words(&broken).await;
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
        let program = connection.program();
        let advice = if at == "initialize" {
            format!("see that {program} speaks the Agent Client Protocol when it is started so")
        } else {
            format!("{program} has answered initialize; start it by itself, to see what it waits for")
        };
        let command = self.command_line(connection.secrets());
        let known = self.started_otherwise(FailureCode::ProtocolError, at);
        let known = known.map(|known| format!("; {known}")).unwrap_or_default();
        let text = format!("no answer to {at}: {advice}; command: {command}{known}; {words}");
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
