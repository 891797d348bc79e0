//! What an agent tells of itself. Pure.

use std::fmt;

use serde_json::Value;
use subagents_external::shown;
use subagents_process::Secrets;

use crate::sign_in::AuthMethod;

/// As many of its ways to sign in are told.
const METHODS: usize = 10;

/// What an agent told when it was started: who it is, and what it can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentInfo {
    name: Option<String>,
    version: Option<String>,
    auth_methods: Vec<AuthMethod>,
    closes_sessions: bool,
    connects_to_mcp: bool,
    images: bool,
}

impl AgentInfo {
    /// Whether it has a way to sign in of this id, as far as it says which it has.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.auth_methods().is_empty() || self.auth_methods().iter().any(|method| method.id() == id)
    }

    /// Of the answer to `initialize`. What is missing or odd is unknown, never an error.
    pub(crate) fn read(answer: &Value, secrets: &Secrets) -> Self {
        let text = |value: &Value| value.as_str().map(|text| shown(text, secrets, 100));
        let info = &answer["agentInfo"];
        let can = &answer["agentCapabilities"];
        let methods = answer["authMethods"].as_array().into_iter().flatten();
        // An ability may be told as true or as an object.
        let has = |value: &Value| value.is_object() || value.as_bool() == Some(true);
        Self {
            name: text(&info["title"]).filter(|title| !title.is_empty()).or_else(|| text(&info["name"])),
            version: text(&info["version"]),
            auth_methods: methods
                .filter_map(|method| AuthMethod::read(method, secrets))
                .take(METHODS)
                .collect(),
            closes_sessions: has(&can["sessionCapabilities"]["close"]),
            connects_to_mcp: has(&can["mcpCapabilities"]["http"]),
            images: has(&can["promptCapabilities"]["image"]),
        }
    }

    /// Its name, as it tells it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Its version, as it tells it.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The ways to sign in that it offers.
    pub fn auth_methods(&self) -> &[AuthMethod] {
        &self.auth_methods
    }

    /// Whether a session can be closed before its process is ended.
    pub fn closes_sessions(&self) -> bool {
        self.closes_sessions
    }

    /// Whether it connects to MCP servers by HTTP.
    pub fn connects_to_mcp(&self) -> bool {
        self.connects_to_mcp
    }

    /// Whether it would take images.
    pub fn takes_images(&self) -> bool {
        self.images
    }
}

impl fmt::Display for AgentInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name().unwrap_or("an agent without a name"))?;
        self.version().map_or(Ok(()), |version| write!(f, " {version}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(answer: &Value) -> AgentInfo {
        AgentInfo::read(answer, &Secrets::default())
    }

    #[test]
    fn an_agent_may_tell_much_or_nothing() {
        let agent = read(&json!({
            "protocolVersion": 1,
            "agentInfo": {"name": "x-cli", "title": "X \u{1b}[1mCLI", "version": "1.2"},
            "agentCapabilities": {
                "sessionCapabilities": {"close": {}},
                "mcpCapabilities": {"http": true},
                "promptCapabilities": {"image": false},
            },
        }));
        assert_eq!(agent.to_string(), "X CLI 1.2");
        assert!(agent.closes_sessions() && agent.connects_to_mcp() && !agent.takes_images());
        for odd in [json!(null), json!({"agentInfo": 7, "authMethods": {}, "agentCapabilities": []})] {
            assert_eq!(read(&odd), AgentInfo::default());
        }
        assert_eq!(AgentInfo::default().to_string(), "an agent without a name");
    }
}
