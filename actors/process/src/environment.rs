//! Which variables of the host reach a child.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Parts of a name that mark a secret (`SPEC 17.3`).
const SECRET_PARTS: [&str; 4] = ["KEY", "PASSWORD", "SECRET", "TOKEN"];

/// Our own variables never leak from one level to the next: depth and scope are set anew for each child.
const OWN_PREFIX: &str = "SUBAGENTS_";

/// Whether a variable of this name is kept from a child unless it is passed or set by name: the name contains
/// `KEY`, `PASSWORD`, `SECRET` or `TOKEN`, in any case (`SPEC 17.3`).
pub fn looks_secret(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    SECRET_PARTS.iter().any(|part| name.contains(part))
}

/// What a command says about its child's environment.
#[derive(Clone, Default)]
pub(crate) struct Environment {
    pub(crate) pass: Vec<OsString>,
    pub(crate) set: Vec<(OsString, OsString)>,
}

// Names only: a value may be a secret, and a Debug output ends in logs.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let set: Vec<_> = self.set.iter().map(|(name, _)| name).collect();
        f.debug_struct("Environment").field("pass", &self.pass).field("set", &set).finish()
    }
}

impl Environment {
    /// The child's whole environment: the host's, scrubbed, then the explicit values.
    pub(crate) fn resolve(
        &self,
        host: impl Iterator<Item = (OsString, OsString)>,
    ) -> BTreeMap<OsString, OsString> {
        let mut child: BTreeMap<_, _> = host
            .filter(|(name, _)| {
                let own = name.to_string_lossy().to_ascii_uppercase().starts_with(OWN_PREFIX);
                self.pass.contains(name) || !(own || looks_secret(name))
            })
            .collect();
        child.extend(self.set.iter().cloned());
        child
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(environment: &Environment, host: &[&str]) -> Vec<String> {
        environment
            .resolve(host.iter().map(|name| (OsString::from(name), OsString::from("host"))))
            .into_iter()
            .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
            .collect()
    }

    #[test]
    fn secrets_and_our_own_names_are_dropped() {
        let host = [
            "HOME",
            "PATH",
            "API_KEY",
            "my_password",
            "AWS_SECRET_ID",
            "GitHub_Token",
            "SUBAGENTS_DEPTH",
            "subagents_x",
            "KEYBOARD",
            "LANG",
        ];
        assert_eq!(resolve(&Environment::default(), &host), ["HOME=host", "LANG=host", "PATH=host"]);
    }

    #[test]
    fn a_name_is_passed_or_set() {
        let environment = Environment {
            pass: vec!["API_KEY".into(), "ABSENT_KEY".into()],
            set: vec![("HOME".into(), "set".into()), ("SUBAGENTS_DEPTH".into(), "1".into())],
        };
        assert_eq!(
            resolve(&environment, &["HOME", "API_KEY", "OTHER_KEY"]),
            ["API_KEY=host", "HOME=set", "SUBAGENTS_DEPTH=1"]
        );
    }

    #[test]
    fn values_are_not_shown() {
        let environment = Environment { pass: vec![], set: vec![("API_KEY".into(), "hunter2".into())] };
        assert!(!format!("{environment:?}").contains("hunter2"));
    }
}
