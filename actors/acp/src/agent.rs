//! What an agent tells of itself. Pure.

use std::fmt;

use serde_json::Value;
use subagents_seam::{bounded, sanitised};

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
    /// Of the answer to `initialize`. What is missing or odd is unknown, never an error.
    pub(crate) fn read(answer: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(|text| bounded(sanitised(text).trim(), 100));
        let info = &answer["agentInfo"];
        let can = &answer["agentCapabilities"];
        let methods = answer["authMethods"].as_array().into_iter().flatten();
        // An ability may be told as true or as an object.
        let has = |value: &Value| value.is_object() || value.as_bool() == Some(true);
        Self {
            name: text(&info["title"]).filter(|title| !title.is_empty()).or_else(|| text(&info["name"])),
            version: text(&info["version"]),
            auth_methods: methods.filter_map(AuthMethod::read).take(METHODS).collect(),
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

/// A way to sign in that an agent offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthMethod {
    id: String,
    name: String,
    variables: Vec<String>,
}

/// Ways that known agents offer without telling which variable satisfies them.
const KNOWN: [(&str, &str); 4] = [
    ("gemini-api-key", "GEMINI_API_KEY"),
    ("codex-api-key", "CODEX_API_KEY"),
    ("openai-api-key", "OPENAI_API_KEY"),
    ("openai", "OPENAI_API_KEY"),
];

impl AuthMethod {
    fn read(method: &Value) -> Option<Self> {
        let id = method["id"].as_str().filter(|id| !id.is_empty() && id.len() <= 200)?;
        let shown = |text: &str| bounded(&sanitised(text), 100);
        let told = method["vars"].as_array().into_iter().flatten();
        let told = told.filter(|variable| variable["optional"].as_bool() != Some(true));
        let told = told.filter_map(|variable| variable["name"].as_str()).map(shown);
        let mut variables: Vec<_> = told.take(METHODS).collect();
        let interactive = method["type"].as_str() == Some("terminal");
        if variables.is_empty() && !interactive {
            let known = KNOWN.iter().filter(|(known, _)| *known == id);
            variables.extend(known.map(|(_, variable)| (*variable).to_owned()));
        }
        let name = method["name"].as_str().map_or_else(|| shown(id), shown);
        Some(Self { id: id.to_owned(), name, variables })
    }

    /// What it is chosen by.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What people see.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The variables that satisfy it without a human. Empty where none are known to.
    pub fn variables(&self) -> &[String] {
        &self.variables
    }

    pub(crate) fn is_satisfied(&self, has_variable: &(dyn Fn(&str) -> bool + Sync)) -> bool {
        !self.variables.is_empty() && self.variables.iter().all(|variable| has_variable(variable))
    }
}

impl fmt::Display for AuthMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", bounded(&sanitised(&self.id), 100), self.name)?;
        if !self.variables.is_empty() {
            write!(f, ", by {}", self.variables.join(" and "))?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_may_tell_much_or_nothing() {
        let agent = AgentInfo::read(&json!({
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
            assert_eq!(AgentInfo::read(&odd), AgentInfo::default());
        }
        assert_eq!(AgentInfo::default().to_string(), "an agent without a name");
    }

    #[test]
    fn a07_a_way_to_sign_in_is_satisfied_by_its_variables() {
        let agent = AgentInfo::read(&json!({"authMethods": [
            {"id": "login", "name": "Log in"},
            {"id": "shell", "name": "Shell", "type": "terminal", "vars": []},
            {"id": "k", "name": "Key", "type": "env_var", "vars": [{"name": "A_KEY"}, {"name": "B", "optional": true}]},
            {"id": "two", "vars": [{"name": "A_KEY"}, {"name": "C_KEY"}]},
            {"id": "gemini-api-key", "name": "Gemini API key"},
            {"name": "no id"},
            7,
        ]}));
        let has = |variable: &str| ["A_KEY", "GEMINI_API_KEY"].contains(&variable);
        let satisfied: Vec<_> = agent
            .auth_methods()
            .iter()
            .filter(|method| method.is_satisfied(&has))
            .map(AuthMethod::id)
            .collect();
        assert_eq!(satisfied, ["k", "gemini-api-key"]);
        let shown: Vec<_> = agent.auth_methods().iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "login (Log in)",
                "shell (Shell)",
                "k (Key, by A_KEY)",
                "two (two, by A_KEY and C_KEY)",
                "gemini-api-key (Gemini API key, by GEMINI_API_KEY)",
            ]
        );
    }
}
