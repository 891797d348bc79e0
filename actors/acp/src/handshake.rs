//! From a process to a session: `initialize`, a sign-in where the agent asks for one, `session/new`, mode and model.

use std::path::Path;

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AuthenticateRequest, Implementation, InitializeRequest, McpServer, NewSessionRequest,
    RequestPermissionOutcome, RequestPermissionResponse,
};
use serde::Serialize;
use serde_json::{Value, json};
use subagents_external::shown;
use subagents_process::Secrets;
use subagents_seam::{FailureCode, ProviderFailure};
use tokio::task::coop::consume_budget;

use crate::agent::AgentInfo;
use crate::connection::{Broken, Connection};
use crate::failure::{self, RpcError};
use crate::sign_in;
use crate::wire::Incoming;

/// The longest answer on the way to a session: lists of models are long.
const LONGEST: usize = 2 * 1024 * 1024;

/// Why there is no session. The agent is still there and has to be ended.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The connection broke while this was asked.
    Broken(&'static str, Broken),
    /// Everything else is known here and now.
    Failed(ProviderFailure),
}

impl From<ProviderFailure> for Refused {
    fn from(failure: ProviderFailure) -> Self {
        Self::Failed(failure)
    }
}

/// What a session is made of.
pub(crate) struct Wanted<'a> {
    pub(crate) cwd: &'a Path,
    pub(crate) mcp_servers: Vec<McpServer>,
    pub(crate) auth_method: Option<&'a str>,
    /// What is known of how to sign in.
    pub(crate) sign_in_hint: Option<&'a str>,
    pub(crate) mode: Option<&'a str>,
    /// The mode in which it asks before it acts, where it has one of this name.
    pub(crate) asking_mode: Option<&'a str>,
    pub(crate) model: Option<&'a str>,
    /// Whether the agent is given a variable of this name.
    pub(crate) has_variable: &'a (dyn Fn(&str) -> bool + Sync),
}

/// Where a handshake is, for whoever has to give it up.
pub(crate) type At<'a> = &'a mut &'static str;

/// Asks what the agent is.
pub(crate) async fn initialize(connection: &mut Connection, at: At<'_>) -> Result<AgentInfo, Refused> {
    let us = Implementation::new("subagents", env!("CARGO_PKG_VERSION")).title("subagents".to_owned());
    let request = InitializeRequest::new(ProtocolVersion::V1).client_info(us);
    let answer = call(connection, "initialize", request, at).await?;
    let answer = answer.map_err(|error| failed(connection, "initialize", &error))?;
    version(&answer["protocolVersion"], connection.secrets()).map_err(|spoken| {
        let text = format!(
            "{} speaks {spoken} of the Agent Client Protocol, and we speak version 1; take a release of it that has \
             version 1",
            connection.program()
        );
        ProviderFailure::new(FailureCode::UnsupportedProtocolVersion, text)
    })?;
    Ok(AgentInfo::read(&answer, connection.secrets()))
}

/// Whether the agent can connect to `server`, where there is one that it has to connect to.
pub(crate) fn connects(
    connection: &Connection,
    agent: &AgentInfo,
    server: Option<&str>,
) -> Result<(), Refused> {
    let Some(server) = server.filter(|_| !agent.connects_to_mcp()) else { return Ok(()) };
    let text = format!(
        "{} cannot connect to the MCP server {server}; give it one that it can start",
        connection.program()
    );
    Err(ProviderFailure::new(FailureCode::ProviderFailed, text).into())
}

/// Makes a session; gives its id.
pub(crate) async fn open(
    connection: &mut Connection,
    agent: &AgentInfo,
    wanted: &Wanted<'_>,
    at: At<'_>,
) -> Result<String, Refused> {
    let request = NewSessionRequest::new(wanted.cwd).mcp_servers(wanted.mcp_servers.clone());
    let mut answer = call(connection, "session/new", &request, at).await?;
    if let Some(error) = sign_in_wanted(&answer) {
        sign_in(connection, agent, wanted, &error, at).await?;
        answer = call(connection, "session/new", &request, at).await?;
        // Once is enough.
        if let Some(error) = sign_in_wanted(&answer) {
            return Err(sign_in_needed(connection, agent, wanted, &error).into());
        }
    }
    let answer = answer.map_err(|error| failed(connection, "session/new", &error))?;
    let Some(session) = answer["sessionId"].as_str().filter(|id| !id.is_empty()) else {
        let text = format!("{} made a session without a sessionId", connection.program());
        return Err(ProviderFailure::new(FailureCode::ProtocolError, text).into());
    };
    let asking = wanted.asking_mode.filter(|mode| Choice::Mode.ids(&answer).1.contains(mode));
    // Checked before anything is asked; the lists are not kept meanwhile.
    let mut offers = Vec::new();
    for (choice, wanted) in [(Choice::Mode, wanted.mode.or(asking)), (Choice::Model, wanted.model)] {
        if let Some(wanted) = wanted {
            offers.push(choose(connection, choice, wanted, session, &answer)?);
        }
    }
    let session = session.to_owned();
    drop(answer);
    for Offer { method, params } in offers {
        if let Err(error) = call(connection, method, params, at).await? {
            return Err(failed(connection, method, &error).into());
        }
    }
    Ok(session)
}

fn sign_in_wanted(answer: &Result<Value, RpcError>) -> Option<RpcError> {
    answer.as_ref().err().filter(|error| error.wants_sign_in()).cloned()
}

/// Signs in by the method that is configured, else by the first that the environment satisfies.
async fn sign_in(
    connection: &mut Connection,
    agent: &AgentInfo,
    wanted: &Wanted<'_>,
    error: &RpcError,
    at: At<'_>,
) -> Result<(), Refused> {
    let method = sign_in::way(agent.auth_methods(), wanted.auth_method, wanted.has_variable);
    let Some(method) = method else { return Err(sign_in_needed(connection, agent, wanted, error).into()) };
    let request = AuthenticateRequest::new(method.to_owned());
    match call(connection, "authenticate", &request, at).await? {
        Ok(_) => Ok(()),
        Err(error) => Err(sign_in_needed(connection, agent, wanted, &error).into()),
    }
}

fn sign_in_needed(
    connection: &Connection,
    agent: &AgentInfo,
    wanted: &Wanted<'_>,
    error: &RpcError,
) -> ProviderFailure {
    let advice = sign_in::advice(agent.auth_methods(), wanted.sign_in_hint);
    let text = format!("{} wants a sign-in ({}); {advice}", connection.program(), error.brief());
    ProviderFailure::new(FailureCode::AuthRequired, text)
}

/// What may be chosen for a session.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Choice {
    Mode,
    Model,
}

/// One way in which an agent offers a choice.
struct Offer {
    method: &'static str,
    params: Value,
}

impl Choice {
    const fn word(self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::Model => "model",
        }
    }

    /// The lists that an agent may give, each with the ids in it: configuration options, then what was before them.
    pub(crate) fn ids(self, session: &Value) -> (Option<&str>, Vec<&str>) {
        let options = session["configOptions"].as_array().into_iter().flatten();
        let mut of_kind = options
            .filter(|option| option["category"].as_str().or(option["id"].as_str()) == Some(self.word()));
        if let Some(option) = of_kind.next() {
            // Groups hold options of their own.
            let values = option["options"].as_array().into_iter().flatten().flat_map(|option| {
                let group = option["options"].as_array().into_iter().flatten();
                std::iter::once(option).chain(group).filter_map(|option| option["value"].as_str())
            });
            return (option["id"].as_str(), values.collect());
        }
        let (list, key) = match self {
            Self::Mode => (&session["modes"]["availableModes"], "id"),
            Self::Model => (&session["models"]["availableModels"], "modelId"),
        };
        (None, list.as_array().into_iter().flatten().filter_map(|entry| entry[key].as_str()).collect())
    }

    fn offer(self, session_id: &str, option: Option<&str>, wanted: &str) -> Offer {
        match (self, option) {
            (_, Some(option)) => Offer {
                method: "session/set_config_option",
                params: json!({"sessionId": session_id, "configId": option, "value": wanted}),
            },
            (Self::Mode, None) => Offer {
                method: "session/set_mode",
                params: json!({"sessionId": session_id, "modeId": wanted}),
            },
            (Self::Model, None) => Offer {
                method: "session/set_model",
                params: json!({"sessionId": session_id, "modelId": wanted}),
            },
        }
    }
}

fn choose(
    connection: &Connection,
    choice: Choice,
    wanted: &str,
    session_id: &str,
    session: &Value,
) -> Result<Offer, ProviderFailure> {
    let (option, ids) = choice.ids(session);
    // Where it does not tell what it has, it is asked all the same.
    if !ids.is_empty() && !ids.contains(&wanted) {
        let told: Vec<_> = ids.iter().take(20).map(|id| shown(id, connection.secrets(), 80)).collect();
        let text = format!(
            "{} has no {} `{}`; it has {}{}",
            connection.program(),
            choice.word(),
            shown(wanted, connection.secrets(), 80),
            told.join(", "),
            if ids.len() > told.len() { ", …" } else { "" },
        );
        return Err(ProviderFailure::new(FailureCode::ProviderFailed, text));
    }
    Ok(choice.offer(session_id, option, wanted))
}

/// A version that is ours; otherwise what is spoken, in words. A number in quotes is taken for a number.
fn version(told: &Value, secrets: &Secrets) -> Result<(), String> {
    let number = match told {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null => return Err("no version (there is no protocolVersion in its answer)".to_owned()),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    match number {
        Some(1) => Ok(()),
        // Masked before it is written as JSON, which changes how it looks.
        _ => Err(format!("version {}", shown(&failure::masked(told, secrets).to_string(), secrets, 40))),
    }
}

fn failed(connection: &Connection, method: &str, error: &RpcError) -> ProviderFailure {
    let code = if error.wants_sign_in() { FailureCode::AuthRequired } else { FailureCode::ProviderFailed };
    let text = format!("{} refused {method}: {error}; see that it works by itself", connection.program());
    ProviderFailure::new(code, text)
}

/// Asks, and waits for the answer. Meanwhile nothing that the agent asks of us is granted: there is no session yet.
async fn call(
    connection: &mut Connection,
    method: &'static str,
    params: impl Serialize,
    at: At<'_>,
) -> Result<Result<Value, RpcError>, Refused> {
    *at = method;
    let asked = connection.request(method, params);
    loop {
        let line = connection.next().await.map_err(|broken| Refused::Broken(method, broken))?;
        consume_budget().await;
        match line.read() {
            Incoming::Response { id, outcome } if id == asked => {
                let result = match outcome.map_err(|error| RpcError::read(error, connection.secrets())) {
                    Ok(result) => result.get(),
                    Err(error) => return Ok(Err(error)),
                };
                if result.len() > LONGEST {
                    let (program, bytes) = (connection.program(), result.len());
                    let text =
                        format!("{program} answered {method} with {bytes} bytes, which no agent needs");
                    return Err(ProviderFailure::new(FailureCode::ProtocolError, text).into());
                }
                return serde_json::from_str(result).map(Ok).map_err(|error| {
                    let why = shown(&error.to_string(), connection.secrets(), 200);
                    let text =
                        format!("{} answered {method} with what cannot be read: {why}", connection.program());
                    ProviderFailure::new(FailureCode::ProtocolError, text).into()
                });
            }
            // A program that only repeats its input would take our refusal for the answer next.
            Incoming::Request { id, method: said, .. } if said == method && id.get() == asked.to_string() => {
                let text = format!(
                    "{} repeats what it is sent, so that it is no agent; give it the argument with which it speaks the \
                     protocol",
                    connection.program()
                );
                return Err(ProviderFailure::new(FailureCode::ProtocolError, text).into());
            }
            Incoming::Request { id, method, .. } if method == "session/request_permission" => {
                connection.reply(id, RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled));
            }
            Incoming::Request { id, method, .. } => connection.refuse_unknown(id, &method),
            Incoming::Stray => {
                connection.pass_over(&line).map_err(|broken| Refused::Broken(method, broken))?;
            }
            Incoming::Chunk(_)
            | Incoming::Response { .. }
            | Incoming::Notification { .. }
            | Incoming::Unasked => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a02_the_version_is_read_leniently_and_judged_strictly() {
        for good in [json!(1), json!("1"), json!(" 1 ")] {
            assert_eq!(version(&good, &Secrets::default()), Ok(()), "{good}");
        }
        for (bad, spoken) in [
            (json!(99), "version 99"),
            (json!(2), "version 2"),
            (json!(0), "version 0"),
            (json!("one"), "version \"one\""),
            (json!(1.5), "version 1.5"),
            (json!([1]), "version [1]"),
            (json!(null), "no version (there is no protocolVersion in its answer)"),
        ] {
            assert_eq!(version(&bad, &Secrets::default()), Err(spoken.to_owned()));
        }
    }

    #[test]
    fn a_choice_is_found_where_an_agent_offers_it() {
        let session = json!({
            "modes": {"availableModes": [{"id": "a"}, {"id": "b"}]},
            "models": {"availableModels": [{"modelId": "m"}]},
        });
        assert_eq!(Choice::Mode.ids(&session), (None, vec!["a", "b"]));
        assert_eq!(Choice::Model.ids(&session), (None, vec!["m"]));
        let session = json!({
            "modes": {"availableModes": [{"id": "a"}]},
            "configOptions": [
                {"id": "effort", "category": "thought_level", "options": [{"value": "high"}]},
                {"id": "x", "category": "mode", "options": [{"value": "c"}]},
                {"id": "model", "options": [{"group": "g", "options": [{"value": "n"}]}]},
            ],
        });
        assert_eq!(Choice::Mode.ids(&session), (Some("x"), vec!["c"]));
        assert_eq!(Choice::Model.ids(&session), (Some("model"), vec!["n"]));
        assert_eq!(Choice::Mode.ids(&json!({})), (None, vec![]));
        let offer = Choice::Mode.offer("s", Some("x"), "c");
        assert_eq!(offer.method, "session/set_config_option");
        assert_eq!(offer.params, json!({"sessionId": "s", "configId": "x", "value": "c"}));
    }
}
