//! Real agents, each at its pin, under the real runtime, with a model server on the loopback that says what the scenario
//! needs: no key, no network, no bill.
//!
//! ```sh
//! tests/peers/install.sh
//! cargo test --test peers -- --only gemini --scenario answer
//! ```
//!
//! Each scenario holds the outcome to what `expectations.rs` and the agents' own `agent.json` say, and looks after it in
//! `/proc` for anything that is still alive. What is not installed is passed over.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program, and this is its output")]

mod expectations;
mod play;
#[allow(dead_code, reason = "what the other tests need as well")]
#[path = "../it/processes.rs"]
mod processes;
mod prompts;
#[allow(dead_code, reason = "what the other suite needs as well")]
#[path = "../real.rs"]
mod real;
mod stage;

use expectations::{Agent, SCENARIOS, Scenario, command_line, markdown, table};
use play::{Play, Played};
use real::arguments::Arguments;
use real::installed::{Installed, present};
use real::program::{obey, runtime};
use std::path::PathBuf;
use std::process::ExitCode;
use subagents_testkit::model::FakeModel;

fn main() -> ExitCode {
    obey(&command_line(), || markdown(&Agent::all()), play_all)
}

/// One agent with what came of it.
struct Row {
    agent: Agent,
    cells: Vec<(&'static Scenario, Played)>,
}

fn play_all(arguments: &Arguments) -> ExitCode {
    let look = |agent: &Agent| Installed::look(&agent.name, &agent.pins(), &agent.program);
    let here = match present("peers", Agent::all(), arguments, |agent| agent.name.clone(), look) {
        Ok(here) => here,
        Err(code) => return code,
    };
    let scenarios = SCENARIOS.iter().filter(|scenario| {
        arguments.scenarios.is_empty() || arguments.scenarios.iter().any(|name| name == scenario.name)
    });
    // The recorder in between would be the first process.
    let scenarios =
        scenarios.filter(|scenario| arguments.record.is_none() || scenario.name != "killed-first");
    let scenarios: Vec<_> = scenarios.collect();
    let record =
        arguments.record.as_deref().map(|folder| std::path::absolute(folder).unwrap_or(folder.into()));
    if let Some(Err(error)) = record.as_deref().map(std::fs::create_dir_all) {
        eprintln!("recordings cannot be kept there: {error}");
        return ExitCode::FAILURE;
    }
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let rows = runtime.block_on(async {
        let model = FakeModel::start().await?;
        let mut rows = Vec::new();
        for (agent, installed) in here {
            println!("{}: {} {}, in {}", agent.name, agent.package, agent.version, installed.display());
            let mut cells = Vec::new();
            for scenario in &scenarios {
                let file = record.as_ref().map(|folder| file(folder, &agent, scenario));
                let play =
                    Play { agent: &agent, scenario, installed: &installed, model: &model, record: file };
                let played = play.play().await;
                tell(&agent, scenario, &played);
                cells.push((*scenario, played));
            }
            rows.push(Row { agent, cells });
        }
        model.stop().await;
        Ok::<_, std::io::Error>(rows)
    });
    match rows {
        Ok(rows) => show(&rows, &scenarios),
        Err(error) => {
            eprintln!("no model server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn file(folder: &std::path::Path, agent: &Agent, scenario: &Scenario) -> PathBuf {
    // Of a crowd, each records for itself.
    let process = if scenario.name == "crowd" { "-%p" } else { "" };
    folder.join(format!("{}-{}{process}.jsonl", agent.name, scenario.name))
}

/// As it goes.
fn tell(agent: &Agent, scenario: &Scenario, played: &Played) {
    let start =
        played.start.map_or_else(String::new, |start| format!(", made in {:.1} s", start.as_secs_f32()));
    let cell = if played.faults.is_empty() { agent.cell(scenario) } else { "NOT AS EXPECTED".to_owned() };
    println!("{:<10} {:<15} {cell} ({:.1} s{start})", agent.name, scenario.name, played.all.as_secs_f32());
    for fault in &played.faults {
        println!("           - {fault}");
    }
}

/// The table of this run, and whether all is as expected.
fn show(rows: &[Row], scenarios: &[&'static Scenario]) -> ExitCode {
    let as_expected = |agent: &Agent, scenario: &Scenario| {
        let row = rows.iter().find(|row| row.agent.name == agent.name)?;
        let (_, played) = row.cells.iter().find(|(played, _)| played.name == scenario.name)?;
        played.faults.is_empty().then(|| agent.cell(scenario))
    };
    let agents: Vec<_> = rows.iter().map(|row| &row.agent).collect();
    println!("\n{}", table(&agents, scenarios, as_expected));
    let cells = rows.iter().flat_map(|row| &row.cells);
    let (passed, failed): (Vec<_>, Vec<_>) = cells.partition(|(_, played)| played.faults.is_empty());
    println!("{} passed, {} failed", passed.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
