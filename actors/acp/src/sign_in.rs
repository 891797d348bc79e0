//! The ways to sign in that an agent offers, and which of them the environment satisfies. Pure.

use std::fmt;

use serde_json::Value;
use subagents_external::shown;
use subagents_process::Secrets;

/// As many variables of one way are told.
const VARIABLES: usize = 10;

/// A way to sign in that an agent offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthMethod {
    id: String,
    /// The id as it is shown.
    shown: String,
    name: String,
    variables: Vec<String>,
    /// One of the variables is enough.
    any: bool,
}

/// Ways that agents offer without telling which variable satisfies them: by their id, or by whose key they ask for.
const KNOWN: [(&str, &[&str]); 7] = [
    ("codex-api-key", &["CODEX_API_KEY"]),
    ("gemini-api-key", &["GEMINI_API_KEY"]),
    ("openai", &["OPENAI_API_KEY"]),
    ("openai-api-key", &["OPENAI_API_KEY"]),
    ("vertex-ai", &["GOOGLE_API_KEY"]),
    ("api-key of openai", &["CODEX_API_KEY", "OPENAI_API_KEY"]),
    ("api-key of google", &["GEMINI_API_KEY"]),
];

impl AuthMethod {
    pub(crate) fn read(method: &Value, secrets: &Secrets) -> Option<Self> {
        let id = method["id"].as_str().filter(|id| !id.is_empty() && id.len() <= 200)?;
        let shown = |text: &str| shown(text, secrets, 100);
        let told = method["vars"].as_array().into_iter().flatten();
        let told = told.filter(|variable| variable["optional"].as_bool() != Some(true));
        let told = told.filter_map(|variable| variable["name"].as_str()).map(shown);
        let mut variables: Vec<_> = told.take(VARIABLES).collect();
        let any = variables.is_empty();
        if any && method["type"].as_str() != Some("terminal") {
            let whose = method["_meta"]["api-key"]["provider"].as_str();
            let whose = whose.map(|whose| format!("api-key of {whose}"));
            let known = KNOWN.iter().find(|(known, _)| *known == id || Some(*known) == whose.as_deref());
            variables
                .extend(known.into_iter().flat_map(|(_, names)| names.iter().map(|name| (*name).to_owned())));
        }
        let name = method["name"].as_str().map_or_else(|| shown(id), shown);
        Some(Self { id: id.to_owned(), shown: shown(id), name, variables, any })
    }

    /// What it is chosen by, as the agent tells it: foreign text.
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
        let mut has = self.variables.iter().map(|variable| has_variable(variable));
        if self.any { has.any(|has| has) } else { has.all(|has| has) }
    }
}

impl fmt::Display for AuthMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.shown, self.name)?;
        if !self.variables.is_empty() {
            write!(f, ", by {}", self.variables.join(if self.any { " or " } else { " and " }))?;
        }
        f.write_str(")")
    }
}

/// The id of the way to take: the one that is configured, else the first that the environment satisfies.
pub(crate) fn way<'a>(
    methods: &'a [AuthMethod],
    configured: Option<&'a str>,
    has_variable: &(dyn Fn(&str) -> bool + Sync),
) -> Option<&'a str> {
    configured.or_else(|| methods.iter().find(|method| method.is_satisfied(has_variable)).map(AuthMethod::id))
}

/// What to do, for people: all the ways, and what is known of this very agent.
pub(crate) fn advice(methods: &[AuthMethod], hint: Option<&str>) -> String {
    let ways: Vec<_> = methods.iter().map(ToString::to_string).collect();
    let ways = if ways.is_empty() { String::new() } else { format!("its ways: {}; ", ways.join("; ")) };
    let hint = hint.unwrap_or("sign in with the program itself, or pass it the variable (pass_env)");
    format!("{ways}{hint}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a07_a_way_to_sign_in_is_satisfied_by_its_variables() {
        let methods = json!([
            {"id": "login", "name": "Log in"},
            {"id": "shell", "name": "Shell", "type": "terminal", "vars": []},
            {"id": "k", "name": "Key", "type": "env_var", "vars": [{"name": "A_KEY"}, {"name": "B", "optional": true}]},
            {"id": "two", "vars": [{"name": "A_KEY"}, {"name": "C_KEY"}]},
            {"id": "gemini-api-key", "name": "Gemini API key"},
            {"id": "api-key", "name": "API Key", "_meta": {"api-key": {"provider": "openai"}}},
            {"id": "openai", "type": "terminal"},
            {"name": "no id"},
            7,
        ]);
        let methods: Vec<_> = methods
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|method| AuthMethod::read(method, &Secrets::default()))
            .collect();
        let has = |variable: &str| ["A_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"].contains(&variable);
        let satisfied: Vec<_> =
            methods.iter().filter(|method| method.is_satisfied(&has)).map(AuthMethod::id).collect();
        assert_eq!(satisfied, ["k", "gemini-api-key", "api-key"]);
        assert_eq!(way(&methods, None, &has), Some("k"));
        assert_eq!(way(&methods, Some("login"), &has), Some("login"));
        assert_eq!(way(&methods, None, &|_| false), None);
        let shown: Vec<_> = methods.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "login (Log in)",
                "shell (Shell)",
                "k (Key, by A_KEY)",
                "two (two, by A_KEY and C_KEY)",
                "gemini-api-key (Gemini API key, by GEMINI_API_KEY)",
                "api-key (API Key, by CODEX_API_KEY or OPENAI_API_KEY)",
                "openai (openai)",
            ]
        );
        assert!(advice(&[], None).starts_with("sign in with the program itself"));
        assert!(advice(&methods[..1], Some("do so")).eq("its ways: login (Log in); do so"));
    }
}
