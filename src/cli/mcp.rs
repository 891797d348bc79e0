//! `subagents mcp`: the tools, for the models of MCP hosts.

use crate::cli::{
    EXIT_FAILED,
    args::McpArgs,
    ledger, limits,
    plan::{self, Environment, UsageError},
    signals::{Caught, Signals},
    stderr,
};
use std::{
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};
use subagents::{
    CancellationToken, DynProvider, Name, SubagentService,
    config::{Config, LedgerConfig, Policy, ProviderConfig},
    mcp::{HttpToken, McpServer},
    process::Host,
    sanitised,
    tool::{SubagentTool, Toolbox},
};
use tokio::net::TcpListener;

/// How many children work at once where nothing else was said.
const JOBS: usize = 16;
/// How many files the clients over HTTP may have open.
const CLIENTS: usize = 2_400;
/// How many calls may wait for a place.
const WAITING: usize = 4096;
/// How long a host that goes is given for what it leaves: the grace of a cancel and a teardown.
const GRACE: Duration = Duration::from_secs(15);
/// How long what was still answered may take to be written.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long after a second signal.
const NO_GRACE: Duration = Duration::from_millis(20);

/// Everything that is to be done, decided.
pub(crate) struct Plan {
    providers: Vec<(Name, DynProvider, Option<usize>)>,
    tools: Vec<SubagentTool>,
    /// Why there are none.
    none: Option<String>,
    jobs: usize,
    deadlines: subagents::Deadlines,
    ledger: LedgerConfig,
    cwd: PathBuf,
    depth: u32,
    max_depth: Option<u32>,
    door: Door,
}

/// Where clients come from.
enum Door {
    Stdio,
    /// From a port. Without a token of the environment's a new one is made.
    Http(SocketAddr, Option<HttpToken>),
}

impl Plan {
    pub(crate) fn new(
        args: &McpArgs,
        config: &Config,
        environment: Environment<'_>,
    ) -> Result<Self, UsageError> {
        let cwd = plan::absolute(args.cwd.as_deref())?;
        let named = args.provider.iter().map(|name| config.select(Some(name)));
        let named: Vec<_> = named.collect::<Result<_, _>>()?;
        let mut tools = match &*named {
            [] => config.tools(&cwd),
            [one] => vec![one.tool("subagent")],
            several => Config::tools_of(several.iter().copied()),
        };
        if let Some(timeout) = args.timeout {
            tools = tools.into_iter().map(|tool| tool.timeout(timeout)).collect();
        }
        let asks = |tool: &SubagentTool| {
            config.provider(tool.provider()).is_some_and(|provider| provider.acp().is_some())
        };
        if args.permission.is_some() && !tools.iter().any(asks) {
            return Err(plan::no_permission("none of these providers is of it"));
        }
        let used = |provider: &&ProviderConfig| tools.iter().any(|tool| tool.provider() == provider.name());
        let providers = config.providers().iter().filter(used);
        let providers = providers.map(|provider| {
            let name = provider.name().clone();
            (name, ready(provider, args.permission), provider.limit())
        });
        let none = "no provider is configured, and no known agent is on PATH; `subagents providers` says what would help";
        Ok(Self {
            providers: providers.collect(),
            none: tools.is_empty().then(|| none.to_owned()),
            tools,
            jobs: args.jobs.map(usize::from).or(config.jobs()).unwrap_or(JOBS),
            deadlines: config.deadlines().clone(),
            ledger: config.ledger().clone(),
            cwd,
            depth: plan::number(environment, plan::DEPTH)?.unwrap_or(0),
            max_depth: plan::number(environment, plan::MAX_DEPTH)?,
            door: match args.http {
                Some(address) => Door::Http(address, token(environment)?),
                None => Door::Stdio,
            },
        })
    }
}

/// The variable that the token comes from. Its name keeps it from the children.
const TOKEN: &str = "SUBAGENTS_MCP_TOKEN";

fn token(environment: Environment<'_>) -> Result<Option<HttpToken>, UsageError> {
    let Some(value) = environment(TOKEN) else { return Ok(None) };
    // The value itself is told to nobody.
    let token = HttpToken::new(&value.to_string_lossy());
    token.map(Some).map_err(|error| UsageError(format!("{TOKEN}: {error}; unset it, and one is made")))
}

fn ready(provider: &ProviderConfig, permission: Option<Policy>) -> DynProvider {
    match (provider.acp(), permission) {
        (Some(acp), Some(policy)) => acp.permission(plan::permission(policy)).into(),
        // One that asks nobody has nothing to be told.
        (Some(_) | None, _) => provider.provider(),
    }
}

fn tell(line: &str) {
    stderr::tell(format!("{}\n", sanitised(line)).into());
}

/// Tells the address on stdout, as the only line: with the token in it where it was made here, since nobody else knows it.
fn invite(listener: TcpListener, token: Option<HttpToken>) -> io::Result<(TcpListener, HttpToken)> {
    let address = listener.local_addr()?;
    let (url, how, token) = if let Some(token) = token {
        let how = format!("the header `Authorization: Bearer` and the token of {TOKEN}");
        (format!("http://{address}/mcp"), how, token)
    } else {
        let token = HttpToken::random();
        let how = format!("the token that stands in the address; {TOKEN} sets one that stays");
        (token.url(address), how, token)
    };
    let mut stdout = io::stdout();
    writeln!(stdout, "{url}")?;
    stdout.flush()?;
    tell(&format!("subagents: serving MCP over HTTP on {address} to whoever has {how}"));
    Ok((listener, token))
}

/// Serves until the host goes; gives the exit code.
///
/// # Errors
/// What can be known before anything starts.
pub(crate) fn serve(plan: Plan) -> Result<u8, UsageError> {
    let clients = if matches!(plan.door, Door::Http(..)) { CLIENTS } else { 0 };
    limits::make_room(plan.jobs, clients);
    let failed = |error: io::Error| UsageError(format!("the program cannot be set up: {error}"));
    limits::room_for_threads().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(failed)?;
    let code = runtime.block_on(served(plan));
    // A read of stdin that nobody waits for may still block.
    runtime.shutdown_timeout(Duration::from_millis(100));
    code
}

async fn served(plan: Plan) -> Result<u8, UsageError> {
    let failed = |error: io::Error| UsageError(format!("the program cannot be set up: {error}"));
    let mut signals = Signals::install().map_err(failed)?;
    let host = Host::current().map_err(failed)?;
    // The program itself, also when its file has been replaced or removed.
    host.set_guardian("/proc/self/exe", [crate::cli::GUARDIAN]);
    // Who has the port is known before anything else is done.
    let door = match plan.door {
        Door::Stdio => None,
        Door::Http(address, token) => {
            let listener = TcpListener::bind(address).await;
            let listener =
                listener.map_err(|error| UsageError(format!("{address} cannot be listened on: {error}")))?;
            Some((listener, token))
        }
    };
    if door.is_none() && io::stdin().is_terminal() {
        tell(
            "subagents: this waits for an MCP host on stdin; see `subagents mcp --help` for the line that each host needs",
        );
    }
    // What an earlier run left is ended before anything is started, and not before the host has its answer.
    let ledger = tokio::select! {
        ledger = ledger::open(&plan.ledger, |name| std::env::var_os(name), false, tell) => ledger?,
        caught = signals.next() => return Ok(caught.exit_code()),
    };
    let mut service = SubagentService::builder()
        .root_depth(plan.depth)
        .overall_limit(plan.jobs)
        .queue(WAITING)
        .deadlines(plan.deadlines);
    for (name, provider, limit) in plan.providers {
        service = service.provider(&*name, provider);
        if let Some(limit) = limit {
            service = service.limit(&*name, limit);
        }
    }
    if let Some(depth) = plan.max_depth {
        service = service.max_depth(depth);
    }
    let wrong = |why: String| UsageError(why);
    let service = service.build().map_err(|error| wrong(error.to_string()))?;
    // Each client has a root of its own; whether it can be had is known now.
    drop(service.root(&plan.cwd).map_err(|error| wrong(error.to_string()))?);
    let toolbox =
        Toolbox::new(&service, plan.tools).map_err(|error| wrong(format!("{}: {error}", error.code())))?;
    if let Some(none) = &plan.none {
        tell(&format!("subagents: no tool is offered: {none}"));
    }
    let _seen = crate::cli::seen(&service, "subagents mcp", tell);
    let server = McpServer::new(&service, toolbox, plan.cwd);
    let door = door.map(|(listener, token)| invite(listener, token)).transpose().map_err(failed)?;
    let (ends, over_http) = (CancellationToken::new(), door.is_some());
    let mut serving = std::pin::pin!(async {
        match door {
            None => server.serve(tokio::io::stdin(), tokio::io::stdout()).await,
            Some((listener, token)) => server.serve_http(listener, token, ends.cancelled()).await,
        }
    });
    let (mut code, caught) = tokio::select! {
        served = &mut serving => match served {
            Ok(()) => (0, None),
            Err(error) => {
                tell(&format!("subagents: {error}"));
                (EXIT_FAILED, None)
            }
        },
        caught = signals.next() => (caught.exit_code(), Some(caught)),
    };
    if let Some(caught) = caught {
        tell(&format!("subagents: {}: ending what is under way; once more kills", Caught::as_str(caught)));
    }
    let report = tokio::select! {
        report = service.shutdown(GRACE) => report,
        again = signals.next() => {
            code = again.exit_code();
            service.shutdown(NO_GRACE).await
        }
    };
    // What was still answered is written.
    ends.cancel();
    if caught.is_some() && over_http {
        let _ = tokio::time::timeout(LAST_WORDS, serving).await;
    }
    for (run, what) in &report.leaked {
        tell(&format!("subagents: run {run} may have left something behind: {what}"));
        code = code.max(EXIT_FAILED);
    }
    ledger::close(ledger, tell);
    Ok(code)
}
