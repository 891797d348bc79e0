//! Agents that are known by name: how to start them, what they sign in with, and what is to be known of them.

use std::time::Duration;

use crate::provider::Acp;

/// An agent that is found by its name on `PATH`, without configuration.
///
/// The commands and variables are those that the agent's own documentation names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownAgent {
    /// Its name as a provider.
    pub name: &'static str,
    /// Who it is.
    pub title: &'static str,
    /// The program and its arguments.
    pub command: &'static [&'static str],
    /// The variables of its own sign-in, which reach it although their names look like secrets. No other does.
    pub pass_env: &'static [&'static str],
    /// The mode in which it asks before it acts, by its own id: what its sessions are set to where nobody says otherwise, also
    /// where everything is allowed (Codex has a model decide otherwise). None where it asks anyway.
    pub asking_mode: Option<&'static str>,
    /// Variables by which it asks before it acts, where not everything is allowed.
    pub asking_env: &'static [(&'static str, &'static str)],
    /// How to get it.
    pub install: &'static str,
    /// How to sign in.
    pub sign_in: &'static str,
}

/// All that are known, in the order in which one is chosen where nobody chooses.
pub const KNOWN_AGENTS: &[KnownAgent] = &[
    KnownAgent {
        name: "claude-agent-acp",
        title: "Claude Code, by its ACP adapter",
        command: &["claude-agent-acp"],
        pass_env: &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"],
        asking_mode: Some("default"),
        asking_env: &[],
        install: "npm install -g @agentclientprotocol/claude-agent-acp",
        sign_in: "sign in with `claude`, or set ANTHROPIC_API_KEY",
    },
    KnownAgent {
        name: "codex-acp",
        title: "Codex, by its ACP adapter",
        command: &["codex-acp"],
        pass_env: &["CODEX_API_KEY", "OPENAI_API_KEY"],
        asking_mode: Some("read-only"),
        asking_env: &[],
        install: "npm install -g @agentclientprotocol/codex-acp",
        sign_in: "sign in with `codex login`, or set OPENAI_API_KEY",
    },
    KnownAgent {
        name: "gemini",
        title: "Gemini CLI",
        command: &["gemini", "--acp"],
        pass_env: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        asking_mode: Some("default"),
        asking_env: &[],
        install: "npm install -g @google/gemini-cli",
        sign_in: "start `gemini` once, or set GEMINI_API_KEY",
    },
    KnownAgent {
        name: "opencode",
        title: "opencode",
        command: &["opencode", "acp"],
        pass_env: &[
            "ANTHROPIC_API_KEY",
            "GEMINI_API_KEY",
            "OPENAI_API_KEY",
            "OPENCODE_API_KEY",
            "OPENROUTER_API_KEY",
        ],
        asking_mode: None,
        // The last rule that fits holds, and a key that the user's own configuration has keeps its place in it: these are spelt
        // as nobody spells them, and come last. Tools of MCP servers have a line in their names; so have some of opencode's own
        // permissions, which are asked for then as well. What an *agent* of opencode's is configured with comes after all of it.
        asking_env: &[(
            "OPENCODE_PERMISSION",
            r#"{"*_*":"ask","bas?":"ask","edi?":"ask","webfetc?":"ask","websearc?":"ask"}"#,
        )],
        install: "npm install -g opencode-ai",
        sign_in: "sign in with `opencode auth login`, or set the key of a model provider",
    },
    KnownAgent {
        name: "qwen",
        title: "Qwen Code",
        command: &["qwen", "--acp"],
        pass_env: &["DASHSCOPE_API_KEY", "OPENAI_API_KEY"],
        asking_mode: Some("default"),
        asking_env: &[],
        install: "npm install -g @qwen-code/qwen-code",
        sign_in: "start `qwen` once, or set OPENAI_API_KEY, OPENAI_BASE_URL and OPENAI_MODEL",
    },
];

impl KnownAgent {
    /// How long a known agent may be silent where nobody says otherwise: some never come back from a model that fails.
    pub const IDLE_TIMEOUT: Duration = Duration::from_mins(30);

    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KNOWN_AGENTS.iter().find(|agent| agent.name == name)
    }

    /// The one that a program of this name is: only of a name that is looked for on `PATH`, since a path may lead to
    /// anything.
    ///
    /// ```
    /// use subagents_acp::KnownAgent;
    /// assert_eq!(KnownAgent::of_program("opencode").map(|agent| agent.name), Some("opencode"));
    /// assert_eq!(KnownAgent::of_program("./opencode"), None);
    /// ```
    pub fn of_program(program: &str) -> Option<&'static Self> {
        KNOWN_AGENTS.iter().find(|agent| agent.command.first() == Some(&program))
    }

    /// The provider of it, to be changed where something else is wanted.
    pub fn provider(&'static self) -> Acp {
        let (program, args) = self.command.split_first().unwrap_or((&"", &[]));
        Acp::new(program).args(args).known(self)
    }
}

#[cfg(test)]
mod tests {
    use subagents_seam::Name;

    use super::*;

    #[test]
    fn each_known_agent_can_be_a_provider() {
        let mut names: Vec<_> = KNOWN_AGENTS.iter().map(|agent| agent.name).collect();
        for agent in KNOWN_AGENTS {
            assert!(Name::of_provider(agent.name).is_ok(), "{}", agent.name);
            assert!(!agent.command.is_empty() && agent.pass_env.iter().all(|name| !name.is_empty()));
            assert_eq!(KnownAgent::named(agent.name), Some(agent));
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KNOWN_AGENTS.len());
        assert_eq!(KnownAgent::named("no-such"), None);
    }
}
