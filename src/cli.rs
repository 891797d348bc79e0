//! The command line. What was typed is in [`args`], what it means in [`plan`], what is done in [`run`].

mod args;
mod asked;
mod deadlines;
mod display;
mod help;
mod ledger;
mod limits;
mod mcp;
mod output;
mod plan;
mod prompts;
mod providers;
mod run;
mod signals;
mod stderr;
mod tally;
mod tree;
mod voices;
mod writer;

use args::{Args, Command};
use plan::{DEPTH, MAX_DEPTH, Plan, UsageError};
use std::{
    ffi::OsString,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};
use subagents::{
    SubagentService,
    config::{Config, Lookup},
    inspect::{Folder, Inspector, OpenError},
    sanitised,
};

/// Something did not go as it should.
const EXIT_FAILED: u8 = 1;
/// Usage or configuration.
const EXIT_USAGE: u8 = 2;
/// Stdout was closed: what a shell says of a program that SIGPIPE ended.
const EXIT_CLOSED: u8 = 141;

/// Not for people: what the program calls itself as, to watch over what it starts.
const GUARDIAN: &str = "__guardian";

pub(crate) fn main() -> ExitCode {
    let code = called();
    stderr::finish();
    code
}

fn called() -> ExitCode {
    let mut typed = std::env::args_os().skip(1);
    if typed.next().is_some_and(|command| command == GUARDIAN) {
        return guard(&typed.next().unwrap_or_default().to_string_lossy());
    }
    let args = match Args::read(std::env::args_os()) {
        Ok(args) => args,
        Err(error) => {
            let plain = error.render().to_string();
            let clean = sanitised(&plain);
            // Help and version come this way, too. Nobody is left to tell where it cannot be printed.
            let _ = if plain == clean { error.print() } else { io::stderr().write_all(clean.as_bytes()) };
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE));
        }
    };
    let help = args.command.help();
    match go(args) {
        Ok(code) => ExitCode::from(code),
        Err(UsageError(message)) => {
            let message = sanitised(&message);
            let _ = writeln!(io::stderr(), "error: {message}\n\nFor more information, try '{help}'.");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

/// Lets other programs of the user look at what is done. Where that cannot be, nobody is kept from working.
fn seen(service: &SubagentService, what: &str, tell: impl Fn(&str)) -> Option<Inspector> {
    let failed = |error: &OpenError| {
        tell(&format!("subagents: {}: {error}; `subagents tree` cannot show this", error.code()));
    };
    Inspector::open(service, what, &sockets()).inspect_err(failed).ok()
}

/// Where programs of this user find each other. Where whoever started us has cleared our environment, an ancestor's says it.
fn sockets() -> Folder {
    const RUNTIME: &str = "XDG_RUNTIME_DIR";
    let ours = std::env::var_os(RUNTIME);
    Folder::in_runtime_dir(ours.or_else(|| subagents::process::inherited_variable(RUNTIME)))
}

fn guard(scope: &str) -> ExitCode {
    match subagents::process::guard(scope, io::stdin().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {GUARDIAN} is not for people: {error}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

/// Our environment. Where whoever started us has cleared it, as some MCP hosts do, what was handed to an ancestor says how
/// deep this is, and of the caps the smallest holds.
fn environment(name: &str) -> Option<OsString> {
    let ours = std::env::var_os(name);
    if (name != DEPTH && name != MAX_DEPTH) || std::env::var_os(DEPTH).is_some() {
        return ours;
    }
    let handed = subagents::process::handed_depth();
    if name == DEPTH {
        return handed.map(|handed| handed.depth.to_string().into());
    }
    // Without a depth it is the user's own, for the outermost.
    let handed = match handed {
        Some(handed) => handed.max_depth.map(|cap| cap.to_string().into()),
        None => subagents::process::inherited_variable(MAX_DEPTH),
    };
    let number = |text: &OsString| text.to_str()?.parse::<u32>().ok();
    match (ours, handed) {
        // What is no number is told as such.
        (Some(ours), Some(handed)) if number(&ours).is_some() && number(&handed) < number(&ours) => {
            Some(handed)
        }
        (ours, handed) => ours.or(handed),
    }
}

fn go(args: Args) -> Result<u8, UsageError> {
    let logging = log_to_stderr()?;
    match args.command {
        Command::Run(args) => {
            let config = configuration(args.config.as_deref())?;
            run::run(Plan::new(*args, &config, &environment, logging)?)
        }
        Command::Mcp(args) => {
            let config = configuration(args.config.as_deref())?;
            mcp::serve(mcp::Plan::new(&args, &config, &environment)?)
        }
        Command::Tree(args) => tree::tell(&args),
        Command::Kill(args) => tree::kill(&args),
        Command::Providers(args) => {
            providers::tell(&configuration(args.config.as_deref())?, args.json, !args.no_start)
                .map_err(UsageError)
        }
    }
}

/// The configuration of where this is called: that of `--cwd` is not asked for.
fn configuration(file: Option<&Path>) -> Result<Config, UsageError> {
    let here = Lookup::here();
    Ok(Config::load(&file.map_or(here.clone(), |file| here.file(file)))?.with_known_agents())
}

/// Installs the log where `SUBAGENTS_LOG` asks for one; says whether it did.
fn log_to_stderr() -> Result<bool, UsageError> {
    let Some(filter) = std::env::var_os("SUBAGENTS_LOG").filter(|filter| !filter.is_empty()) else {
        return Ok(false);
    };
    let wrong = |why: &str| {
        let example = "give a level or `target=level,…`, for example SUBAGENTS_LOG=subagents_process=debug";
        UsageError(format!("SUBAGENTS_LOG is no filter: {why}; {example}"))
    };
    let filter = filter.to_str().ok_or_else(|| wrong("it is not UTF-8"))?;
    let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| wrong(&error.to_string()))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| stderr::Log).init();
    Ok(true)
}
