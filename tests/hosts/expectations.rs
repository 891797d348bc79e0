//! What is expected of each MCP host in each scenario: data, the README's table of it, and nothing that starts anything.
//!
//! Most hosts do the same. Where one does not, its `host.json` says what it does instead and why, and the suite holds it to
//! that.

use super::real::arguments::Suite;
use super::real::{installed, table as real_table};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// One host, by its folder in `tests/hosts`, in the order of the table.
pub(crate) const HOSTS: [&str; 7] =
    ["claude", "codex", "gemini", "opencode", "inspector", "mcp-python", "conformance"];

/// A scenario: its name on the command line, what the table calls it, and how it ends as a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    standard: &'static str,
}

const fn scenario(name: &'static str, title: &'static str, standard: &'static str) -> Scenario {
    Scenario { name, title, standard }
}

/// In the order in which they are played.
pub(crate) const SCENARIOS: [Scenario; 14] = [
    scenario("one", "one call", "answered"),
    scenario("five", "five calls at once", "side by side"),
    scenario("five-told", "… and told to by a setting", "side by side"),
    scenario("fails", "child fails", "error with its reason"),
    scenario("times-out", "child runs out of time", "error that says so"),
    scenario("gives-up", "host gives the call up", "child ended"),
    scenario("seen", "seen, and killed from outside", "error that says so"),
    scenario("server-killed", "`subagents mcp` killed", "host goes on"),
    scenario("cancelled", "host interrupted", "nothing left"),
    scenario("killed", "host killed", "nothing left"),
    scenario("nested", "host below itself, too deep", "refused"),
    scenario("http", "over HTTP", "answered"),
    scenario("nested-http", "host below itself, over HTTP", "refused"),
    scenario("conformance", "conformance suite, 6 scenarios", "passed"),
];

/// What is in `host.json`. `@BASE@` stands for the address of the model server, `@HOME@` for a private home, into which the
/// folder `home` is copied, `@ARCH@` for the processor as node calls it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    /// The folder.
    #[serde(skip)]
    pub(crate) name: String,
    /// In the table.
    title: String,
    version: String,
    /// What it is installed as, where it comes with an agent of `tests/peers/agents`: then that one's variables and home are
    /// its own as well.
    #[serde(default)]
    agent: Option<String>,
    /// What it is pinned by: its place in the lock, or its name in the requirements.
    package: String,
    /// Below the folder that it is installed in.
    program: String,
    /// What its user types to add a server, without the program. None where a file of its home says it.
    #[serde(default)]
    pub(crate) add: Option<Vec<String>>,
    /// What its user types to ask it, without the program; the prompt comes on stdin.
    #[serde(default)]
    pub(crate) ask: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The tool `subagent`, as its model sees it. None where there is no model.
    #[serde(default)]
    pub(crate) tool: Option<String>,
    /// The tool with which its model looks for that one first.
    #[serde(default)]
    pub(crate) search: Option<String>,
    /// What else it is told, by scenario: to give a call up after four seconds, to have several at work at once, where a server
    /// over HTTP is: at `@URL@`, for who has `@TOKEN@`.
    #[serde(default)]
    pub(crate) told: BTreeMap<String, Told>,
    /// What it plays.
    scenarios: Vec<String>,
    /// By scenario.
    #[serde(default)]
    differs: BTreeMap<String, Differs>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Told {
    /// In place of that of the host.
    #[serde(default)]
    pub(crate) add: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) ask: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// What stands in the table of the tool, for whoever runs the host.
    #[serde(default)]
    pub(crate) table: String,
}

/// What it does instead, and why.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Differs {
    ends_as: String,
    why: String,
}

/// `tests/hosts`.
pub(crate) fn suite() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hosts")
}

fn agents() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/agents")
}

impl Host {
    pub(crate) fn all() -> Vec<Self> {
        HOSTS.iter().map(|name| Self::read(name)).collect()
    }

    fn read(name: &str) -> Self {
        let path = suite().join(name).join("host.json");
        let read = fs::read_to_string(&path).map_err(|error| error.to_string());
        let read =
            read.and_then(|text| serde_json::from_str::<Self>(&text).map_err(|error| error.to_string()));
        let mut host = read.map_err(|error| format!("{}: {error}", path.display())).expect("a host's set-up");
        for scenario in host.differs.keys().chain(host.told.keys()).chain(&host.scenarios) {
            assert!(SCENARIOS.iter().any(|known| known.name == scenario), "{name}: no scenario {scenario}");
        }
        if let Some(agent) = &host.agent {
            #[derive(Deserialize)]
            struct Agent {
                env: BTreeMap<String, String>,
            }
            let setup =
                fs::read_to_string(agents().join(agent).join("agent.json")).expect("an agent's set-up");
            let agent: Agent = serde_json::from_str(&setup).expect("an agent's set-up");
            for (variable, value) in agent.env {
                host.env.entry(variable).or_insert(value);
            }
        }
        Self { name: name.to_owned(), ..host }
    }

    /// The folder of what it is installed from.
    pub(crate) fn source(&self) -> PathBuf {
        self.agent.as_ref().map_or_else(|| suite().join(&self.name), |agent| agents().join(agent))
    }

    pub(crate) fn pins(&self) -> String {
        installed::pins(&self.source())
    }

    /// The folder that it is installed in.
    pub(crate) fn installed_as(&self) -> &str {
        self.agent.as_deref().unwrap_or(&self.name)
    }

    /// Below the folder that it is installed in, on this machine.
    pub(crate) fn program(&self) -> String {
        self.program.replace("@ARCH@", Self::arch())
    }

    fn arch() -> &'static str {
        match std::env::consts::ARCH {
            "x86_64" => "x64",
            "aarch64" => "arm64",
            other => other,
        }
    }

    pub(crate) fn package(&self) -> String {
        self.package.replace("@ARCH@", Self::arch())
    }

    /// What its home begins with.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        let homes = [suite().join(&self.name).join("home"), self.source().join("home")];
        homes.into_iter().find(|home| home.is_dir())
    }

    pub(crate) fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn plays(&self, scenario: &Scenario) -> bool {
        self.scenarios.iter().any(|name| name == scenario.name)
    }

    pub(crate) fn expected(&self, scenario: &Scenario) -> &str {
        self.differs.get(scenario.name).map_or(scenario.standard, |differs| &differs.ends_as)
    }

    /// What the table says of a scenario, without the number of its note.
    pub(crate) fn cell(&self, scenario: &Scenario) -> String {
        match self.expected(scenario) {
            _ if !self.plays(scenario) => "–".to_owned(),
            usual if usual == scenario.standard => "✓".to_owned(),
            other => other.to_owned(),
        }
    }

    fn why(&self, scenario: &Scenario) -> Option<&str> {
        self.differs.get(scenario.name).map(|differs| &*differs.why)
    }
}

/// The README's table.
pub(crate) fn markdown(hosts: &[Host]) -> String {
    let scenarios: Vec<_> = SCENARIOS.iter().collect();
    table(&hosts.iter().collect::<Vec<_>>(), &scenarios, |host, scenario| Some(host.cell(scenario)))
}

/// `cell` says how it was; none where it was not as expected.
pub(crate) fn table(
    hosts: &[&Host],
    scenarios: &[&Scenario],
    cell: impl Fn(&Host, &Scenario) -> Option<String>,
) -> String {
    let columns: Vec<_> = hosts.iter().map(|host| (&*host.title, &*host.version)).collect();
    let rows = scenarios.iter().map(|scenario| {
        let cells = hosts
            .iter()
            .map(|host| cell(host, scenario).map(|told| real_table::Cell { told, why: host.why(scenario) }));
        real_table::Row { title: scenario.title, standard: scenario.standard, cells: cells.collect() }
    });
    real_table::table(&columns, rows.collect())
}

/// Its command line.
pub(crate) fn command_line() -> Suite {
    Suite {
        name: "hosts",
        one: "HOST",
        names: HOSTS.to_vec(),
        scenarios: SCENARIOS.map(|scenario| scenario.name).to_vec(),
        folder: "tests/hosts",
        records: false,
    }
}
