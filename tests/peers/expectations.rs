//! What is expected of each agent in each scenario: data, the README's table of it, and nothing that starts anything.
//!
//! Most agents do what the standard says. Where one does not, its `agent.json` says what it does instead and why, and the
//! suite holds it to that: a version that behaves better is noticed as well.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// One agent, by its folder in `tests/peers/agents`, in the order of the table.
pub(crate) const AGENTS: [&str; 7] = ["claude", "codex", "codex-zed", "gemini", "opencode", "qwen", "python"];

/// A scenario: its name on the command line, what the table calls it, and the standard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    standard: Standard,
}

#[derive(Clone, Copy, Debug)]
struct Standard {
    stop: &'static str,
    category: Option<&'static str>,
    text: &'static str,
    denied: u32,
}

const fn scenario(
    name: &'static str,
    title: &'static str,
    (stop, category): (&'static str, Option<&'static str>),
    text: &'static str,
    denied: u32,
) -> Scenario {
    Scenario { name, title, standard: Standard { stop, category, text, denied } }
}

const COMPLETED: (&str, Option<&str>) = ("completed", None);
const CANCELLED: (&str, Option<&str>) = ("aborted", Some("cancelled"));
const FAILED: (&str, Option<&str>) = ("error", Some("agent-error"));

/// In the order in which they are played.
pub(crate) const SCENARIOS: [Scenario; 12] = [
    scenario("answer", "answer", COMPLETED, "The answer is 42.", 0),
    scenario("refused", "tool refused", COMPLETED, "After the tool.", 1),
    scenario("allowed", "tool allowed", COMPLETED, "After the tool.", 0),
    scenario("cancel-stream", "cancelled while it streams", CANCELLED, "Word after word …", 0),
    scenario("cancel-tool", "cancelled in a tool", CANCELLED, "", 0),
    scenario("model-500", "model answers 500", FAILED, "…", 0),
    scenario("model-drop", "model's stream breaks", FAILED, "Half of …", 0),
    scenario("model-silent", "model is silent", ("timed-out", Some("timed-out")), "", 0),
    scenario("killed", "agent killed", ("error", Some("exited")), "Word after word …", 0),
    scenario("schema-met", "schema met when asked again", COMPLETED, r#"{"answer":42}"#, 0),
    scenario(
        "schema-not-met",
        "schema not met",
        ("error", Some("schema-not-met")),
        r#"{"answer":"most"}"#,
        0,
    ),
    scenario("crowd", "20 at once", COMPLETED, "I am number …", 0),
];

/// What is in `agent.json`: how the agent is started, and where it differs. `@BASE@` stands for the address of the model
/// server, `@HOME@` for a private home, into which the folder `home` is copied, `@SUITE@` for `tests/peers`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Agent {
    /// The folder.
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) package: String,
    pub(crate) version: String,
    /// Below the folder that it is installed in.
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    /// The mode in which it asks for permissions, if that is not the one it starts in.
    #[serde(default)]
    pub(crate) mode: Option<String>,
    /// Its shell as the model sees it. None for an agent without a model, which is told by the prompt what to do.
    #[serde(default)]
    pub(crate) tool: Option<Tool>,
    /// By scenario.
    #[serde(default)]
    pub(crate) differs: BTreeMap<String, Differs>,
}

/// A tool that runs a shell command: `@COMMAND@` in an argument stands for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) arguments: BTreeMap<String, serde_json::Value>,
}

/// What of the standard does not hold, and why.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Differs {
    stop: Option<String>,
    category: Option<String>,
    text: Option<String>,
    denied: Option<u32>,
    /// A fact of the scenario that does not hold for this agent, by its name.
    #[serde(default)]
    pub(crate) not: Vec<String>,
    why: String,
}

/// What a result has to be.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) stop: String,
    pub(crate) category: Option<String>,
    /// Ends in `…` where something follows.
    text: String,
    pub(crate) denied: u32,
}

impl Expected {
    pub(crate) fn text_matches(&self, text: &str) -> bool {
        self.text.strip_suffix('…').map_or(text == self.text, |start| text.starts_with(start))
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// `tests/peers`.
pub(crate) fn suite() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

impl Agent {
    pub(crate) fn all() -> Vec<Self> {
        AGENTS.iter().map(|name| Self::read(name)).collect()
    }

    fn read(name: &str) -> Self {
        let path = suite().join("agents").join(name).join("agent.json");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let agent: Self =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for scenario in agent.differs.keys() {
            assert!(SCENARIOS.iter().any(|known| known.name == scenario), "{name}: no scenario {scenario}");
        }
        Self { name: name.to_owned(), ..agent }
    }

    /// What it is installed from: what `install.sh` leaves in `.pins`.
    pub(crate) fn pins(&self) -> String {
        let folder = suite().join("agents").join(&self.name);
        let files = ["package.json", "package-lock.json", "requirements.txt"].map(|file| folder.join(file));
        files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect()
    }

    pub(crate) fn expected(&self, scenario: &Scenario) -> Expected {
        let Standard { stop, category, text, denied } = scenario.standard;
        let mut expected = Expected {
            stop: stop.to_owned(),
            category: category.map(str::to_owned),
            text: text.to_owned(),
            denied,
        };
        if let Some(differs) = self.differs.get(scenario.name) {
            if let Some(stop) = &differs.stop {
                expected.stop.clone_from(stop);
                expected.category.clone_from(&differs.category);
            }
            expected.category = differs.category.clone().or(expected.category);
            expected.text = differs.text.clone().unwrap_or(expected.text);
            expected.denied = differs.denied.unwrap_or(expected.denied);
        }
        expected
    }

    /// Whether a fact of a scenario is not to be expected.
    pub(crate) fn is_not(&self, scenario: &Scenario, fact: &str) -> bool {
        self.differs.get(scenario.name).is_some_and(|differs| differs.not.iter().any(|not| not == fact))
    }

    /// What the table says of a scenario, without the number of its note.
    pub(crate) fn cell(&self, scenario: &Scenario) -> String {
        let expected = self.expected(scenario);
        if expected.stop == scenario.standard.stop { "✓".to_owned() } else { expected.stop }
    }

    pub(crate) fn why(&self, scenario: &Scenario) -> Option<&str> {
        self.differs.get(scenario.name).map(|differs| &*differs.why)
    }
}

/// The table as the README has it: an agent a row, a scenario a column, and below it what does not go by the standard.
pub(crate) fn markdown(agents: &[Agent]) -> String {
    let mut table = String::from("| agent | version |");
    for scenario in &SCENARIOS {
        let _ = write!(table, " {} |", scenario.title);
    }
    table.push_str("\n|---|---|");
    table.push_str(&":-:|".repeat(SCENARIOS.len()));
    let mut notes: Vec<&str> = Vec::new();
    for agent in agents {
        let _ = write!(table, "\n| `{}` | {} |", agent.package, agent.version);
        for scenario in &SCENARIOS {
            let _ = write!(table, " {}", agent.cell(scenario));
            if let Some(why) = agent.why(scenario) {
                // The same reason is told once.
                let known = notes.iter().position(|note| *note == why);
                let number = known.unwrap_or_else(|| {
                    notes.push(why);
                    notes.len() - 1
                });
                let _ = write!(table, " ({})", number + 1);
            }
            table.push_str(" |");
        }
    }
    table.push_str("\n\n");
    for (number, note) in notes.iter().enumerate() {
        let _ = writeln!(table, "{}. {note}", number + 1);
    }
    table
}
