//! What is expected of each agent in each scenario: data, the README's table of it, and nothing that starts anything.
//!
//! Most agents do what the standard says. Where one does not, its `agent.json` says what it does instead and why, and the
//! suite holds it to that: a version that behaves better is noticed as well.

use super::real::arguments::Suite;
use super::real::{installed, table as real_table};
use serde::Deserialize;
use std::collections::BTreeMap;
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
const EXITED: (&str, Option<&str>) = ("error", Some("exited"));
const FAILED: (&str, Option<&str>) = ("error", Some("agent-error"));

/// In the order in which they are played.
pub(crate) const SCENARIOS: [Scenario; 14] = [
    scenario("answer", "answer", COMPLETED, "The answer is 42.", 0),
    scenario("refused", "tool refused", COMPLETED, "After the tool.", 1),
    scenario("allowed", "tool allowed", COMPLETED, "After the tool.", 0),
    scenario("cancel-stream", "cancelled while it streams", CANCELLED, "Word after word …", 0),
    scenario("cancel-tool", "cancelled in a tool", CANCELLED, "", 0),
    scenario("model-500", "model answers 500", FAILED, "…", 0),
    scenario("model-drop", "model's stream breaks", FAILED, "…", 0),
    scenario("model-cut", "model's stream ends too early", FAILED, "Half of …", 0),
    scenario("model-silent", "model is silent", ("timed-out", Some("timed-out")), "", 0),
    scenario("killed", "agent killed", EXITED, "Word after word …", 0),
    scenario("killed-first", "its first process killed", EXITED, "Word after word …", 0),
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
    /// In the table.
    title: String,
    pub(crate) package: String,
    pub(crate) version: String,
    /// Below the folder that it is installed in.
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    /// Its name among the known agents, where it is one: then it is played as one.
    #[serde(default)]
    pub(crate) known: Option<String>,
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
        let read = fs::read_to_string(&path).map_err(|error| error.to_string());
        let read =
            read.and_then(|text| serde_json::from_str::<Self>(&text).map_err(|error| error.to_string()));
        let agent = read.map_err(|error| format!("{}: {error}", path.display())).expect("an agent's set-up");
        for scenario in agent.differs.keys() {
            assert!(SCENARIOS.iter().any(|known| known.name == scenario), "{name}: no scenario {scenario}");
        }
        Self { name: name.to_owned(), ..agent }
    }

    /// What it is installed from: what `install.sh` leaves in `.pins`.
    pub(crate) fn pins(&self) -> String {
        installed::pins(&suite().join("agents").join(&self.name))
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

    /// What the table says of a scenario, without the number of its note.
    pub(crate) fn cell(&self, scenario: &Scenario) -> String {
        let expected = self.expected(scenario);
        if expected.stop == scenario.standard.stop { "✓".to_owned() } else { expected.stop }
    }

    fn why(&self, scenario: &Scenario) -> Option<&str> {
        self.differs.get(scenario.name).map(|differs| &*differs.why)
    }
}

/// The README's table.
pub(crate) fn markdown(agents: &[Agent]) -> String {
    let scenarios: Vec<_> = SCENARIOS.iter().collect();
    table(&agents.iter().collect::<Vec<_>>(), &scenarios, |agent, scenario| Some(agent.cell(scenario)))
}

/// A scenario a row, an agent a column, and below it why what is not as usual is so. `cell` says how it was; none where it
/// was not as expected.
pub(crate) fn table(
    agents: &[&Agent],
    scenarios: &[&Scenario],
    cell: impl Fn(&Agent, &Scenario) -> Option<String>,
) -> String {
    let columns: Vec<_> = agents.iter().map(|agent| (&*agent.title, &*agent.version)).collect();
    let rows = scenarios.iter().map(|scenario| {
        let cells = agents.iter().map(|agent| {
            cell(agent, scenario).map(|told| real_table::Cell { told, why: agent.why(scenario) })
        });
        real_table::Row { title: scenario.title, standard: scenario.standard.stop, cells: cells.collect() }
    });
    real_table::table(&columns, rows.collect())
}

/// Its command line.
pub(crate) fn command_line() -> Suite {
    Suite {
        name: "peers",
        one: "AGENT",
        names: AGENTS.to_vec(),
        scenarios: SCENARIOS.map(|scenario| scenario.name).to_vec(),
        folder: "tests/peers/agents",
        records: true,
    }
}
