//! Real MCP hosts, each at its pin, that delegate through the real `subagents mcp`. Those with a model have one on the loopback
//! that says what the scenario needs: no key, no network, no bill.
//!
//! ```sh
//! tests/peers/install.sh
//! cargo test --test hosts -- --only gemini --scenario one
//! ```
//!
//! Each scenario holds the outcome to what `expectations.rs` and the hosts' own `host.json` say, and looks after it in `/proc`
//! for anything that is still alive. What is not installed is passed over.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program, and this is its output")]

mod conformance;
#[allow(dead_code, reason = "what a host is pinned by is for who compares it")]
mod expectations;
mod hall;
mod http;
mod inspector;
mod play;
#[allow(dead_code, reason = "what the other tests need as well")]
#[path = "../it/processes.rs"]
mod processes;
mod python;
#[allow(dead_code, reason = "what the other suite needs as well")]
#[path = "../real.rs"]
mod real;
mod stage;

use expectations::{Host, SCENARIOS, Scenario, command_line, markdown, table};
use play::{Play, Played};
use real::arguments::Arguments;
use real::installed::{Installed, present};
use real::program::{obey, runtime};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    obey(&command_line(), || markdown(&Host::all()), play_all)
}

/// One host with what came of it.
struct Row {
    host: Host,
    cells: Vec<(&'static Scenario, Played)>,
}

fn play_all(arguments: &Arguments) -> ExitCode {
    let look = |host: &Host| Installed::look(host.installed_as(), &host.pins(), &host.program());
    let here = match present("hosts", Host::all(), arguments, |host| host.name.clone(), look) {
        Ok(here) => here,
        Err(code) => return code,
    };
    let wanted = |scenario: &&Scenario| {
        arguments.scenarios.is_empty() || arguments.scenarios.iter().any(|name| name == scenario.name)
    };
    let scenarios: Vec<_> = SCENARIOS.iter().filter(wanted).collect();
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(code) => return code,
    };
    let begun = Instant::now();
    let rows: Vec<_> = runtime.block_on(async {
        let mut rows = Vec::new();
        for (host, installed) in here {
            println!("{} {}, in {}", host.name, host.version(), installed.display());
            let mut cells = Vec::new();
            for scenario in scenarios.iter().filter(|scenario| host.plays(scenario)) {
                let played = Play { host: &host, scenario, installed: &installed }.play().await;
                tell(&host, scenario, &played);
                cells.push((*scenario, played));
            }
            rows.push(Row { host, cells });
        }
        rows
    });
    let code = show(&rows, &scenarios);
    println!("in {:.0} s", begun.elapsed().as_secs_f32());
    code
}

/// As it goes.
fn tell(host: &Host, scenario: &Scenario, played: &Played) {
    let cell = if played.faults.is_empty() { host.cell(scenario) } else { "NOT AS EXPECTED".to_owned() };
    println!("{:<11} {:<13} {cell} ({:.1} s)", host.name, scenario.name, played.all.as_secs_f32());
    for fault in &played.faults {
        println!("            - {fault}");
    }
}

/// The table of this run, and whether all is as expected.
fn show(rows: &[Row], scenarios: &[&'static Scenario]) -> ExitCode {
    let as_expected = |host: &Host, scenario: &Scenario| {
        let row = rows.iter().find(|row| row.host.name == host.name)?;
        match row.cells.iter().find(|(played, _)| played.name == scenario.name) {
            Some((_, played)) => played.faults.is_empty().then(|| host.cell(scenario)),
            None => Some(host.cell(scenario)),
        }
    };
    let hosts: Vec<_> = rows.iter().map(|row| &row.host).collect();
    println!("\n{}", table(&hosts, scenarios, as_expected));
    let cells = rows.iter().flat_map(|row| &row.cells);
    let (passed, failed): (Vec<_>, Vec<_>) = cells.partition(|(_, played)| played.faults.is_empty());
    println!("{} passed, {} failed", passed.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
