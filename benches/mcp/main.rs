//! What the border between a host and its subagents costs: a call through the tool and through the protocol beside the bare
//! delegation, in this process; and a call of the real program over stdio beside the same delegation without it, alone and a
//! hundred at once.
//!
//! `cargo bench -p subagents --bench mcp` prints a table and, as its last line, the figures that the project holds itself to;
//! with `-- --quick` it is a smoke run whose figures mean little. Each figure is the median of rounds, in which all ways take
//! turns. Whatever fails, a wrong answer included, ends it with an error.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark reports on its standard output")]

mod client;

use client::Client;
use futures_util::future::join_all;
use serde_json::json;
use std::{
    error::Error,
    process::ExitCode,
    time::{Duration, Instant},
};
use subagents::{
    Capabilities, Exec, Root, StartRequest, SubagentResult, SubagentService, ToolContext,
    mcp::McpServer,
    provider_fn,
    tool::{SubagentTool, Toolbox},
};
use tokio::runtime::Builder;

type Failure = Box<dyn Error>;

/// How much is measured.
struct Plan {
    rounds: usize,
    /// Calls in this process, one after the other.
    inside: u32,
    /// Calls that start a program.
    outside: u32,
    /// Calls at once.
    crowd: usize,
}

const FULL: Plan = Plan { rounds: 9, inside: 2_000, outside: 60, crowd: 100 };
const QUICK: Plan = Plan { rounds: 1, inside: 50, outside: 3, crowd: 20 };

/// What is measured, in the order of the table.
const FIGURES: [&str; 7] = [
    "a delegation to code in this process [µs]",
    "the same by its tool [µs]",
    "the same by the protocol, over pipes in memory [µs]",
    "a delegation to a program, `cat` [ms]",
    "the same by `subagents mcp`, over stdio [ms]",
    "a hundred of these at once, without it [ms]",
    "a hundred at once by `subagents mcp` [ms]",
];

fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    match measure(if quick { &QUICK } else { &FULL }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(plan: &Plan) -> Result<(), Failure> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut samples: [Vec<f64>; 7] = Default::default();
    runtime.block_on(async {
        let mut inside = Inside::open().await?;
        let mut outside = Outside::open(plan.crowd).await?;
        for _ in 0..plan.rounds {
            for (figure, sample) in inside.round(plan.inside).await?.into_iter().enumerate() {
                samples[figure].push(sample);
            }
            for (figure, sample) in outside.round(plan).await?.into_iter().enumerate() {
                samples[3 + figure].push(sample);
            }
        }
        outside.close().await
    })?;
    let medians: Vec<_> = samples.into_iter().map(median).collect();
    for (title, median) in FIGURES.iter().zip(&medians) {
        println!("{title:<58}{median:>10.2}");
    }
    let [direct, tool, pipe, exec, call, crowd, called] = *medians else {
        return Err("seven figures".into());
    };
    println!(
        "mcp: direct_us={direct:.1} tool_us={tool:.1} pipe_us={pipe:.1} border_us={:.1} exec_ms={exec:.2} call_ms={call:.2} \
         stdio_ms={:.2} exec{n}_ms={crowd:.0} call{n}_ms={called:.0}",
        pipe - direct,
        call - exec,
        n = plan.crowd,
    );
    Ok(())
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// A child that answers at once, in this process.
struct Inside {
    service: SubagentService,
    root: Root,
    toolbox: Toolbox,
    client: Client,
}

impl Inside {
    async fn open() -> Result<Self, Failure> {
        let child = provider_fn(Capabilities::NONE, |start, _| async move {
            Ok(SubagentResult::completed(start.prompt().to_text()))
        });
        let service = SubagentService::builder().provider("child", child).build()?;
        let root = service.root("/")?;
        let toolbox = Toolbox::new(&service, [SubagentTool::new("subagent", "child")])?;
        let server = McpServer::new(&service, toolbox.clone(), "/");
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (out, answers) = tokio::io::duplex(64 * 1024);
        let served = tokio::runtime::Handle::current().spawn(async move { server.serve(theirs, out).await });
        let client = Client::new(ours, answers, Some(served)).await?;
        Ok(Self { service, root, toolbox, client })
    }

    /// Microseconds for each of: a delegation, its tool, the protocol.
    async fn round(&mut self, calls: u32) -> Result<[f64; 3], Failure> {
        let direct = Instant::now();
        for _ in 0..calls {
            let result = self.service.delegate("child", StartRequest::new(&self.root, "x")).await?;
            whole(&result.text(), "x")?;
        }
        let direct = direct.elapsed();
        let tool = self.toolbox.tool("subagent").ok_or("the tool is here")?;
        let by_tool = Instant::now();
        for _ in 0..calls {
            let cx = ToolContext::new(&self.root, self.root.parent().token().child_token());
            let output = tool.call(cx, json!({"description": "a task", "prompt": "x"})).await?;
            whole(&output.content.to_text(), "\nx\n")?;
        }
        let by_tool = by_tool.elapsed();
        let by_pipe = Instant::now();
        for _ in 0..calls {
            whole(&self.client.call("subagent", "x").await?, "\nx\n")?;
        }
        let by_pipe = by_pipe.elapsed();
        Ok([direct, by_tool, by_pipe].map(|time| micros(time) / f64::from(calls)))
    }
}

/// The real program, and the same work without it.
struct Outside {
    service: SubagentService,
    root: Root,
    client: Client,
    _folder: tempfile::TempDir,
}

impl Outside {
    async fn open(crowd: usize) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let text = "ledger = false\n[providers.cat]\nkind = \"exec\"\ncommand = [\"cat\"]\n[tools.subagent]\nprovider = \"cat\"\n";
        std::fs::write(folder.path().join("subagents.toml"), text)?;
        let client = Client::start(folder.path(), crowd).await?;
        let service =
            SubagentService::builder().provider("cat", Exec::new("cat")).overall_limit(crowd).build()?;
        let root = service.root(folder.path())?;
        Ok(Self { service, root, client, _folder: folder })
    }

    /// Milliseconds for each of: a delegation, the same by the program, many at once, the same by the program.
    async fn round(&mut self, plan: &Plan) -> Result<[f64; 4], Failure> {
        let one = Instant::now();
        for _ in 0..plan.outside {
            let result = self.service.delegate("cat", StartRequest::new(&self.root, "x")).await?;
            whole(&result.text(), "x")?;
        }
        let one = one.elapsed();
        let called = Instant::now();
        for _ in 0..plan.outside {
            whole(&self.client.call("subagent", "x").await?, "\nx\n")?;
        }
        let called = called.elapsed();
        let crowd = Instant::now();
        let all = (0..plan.crowd).map(|_| self.service.delegate("cat", StartRequest::new(&self.root, "x")));
        for result in join_all(all).await {
            whole(&result?.text(), "x")?;
        }
        let crowd = crowd.elapsed();
        let crowd_called = Instant::now();
        for text in self.client.calls("subagent", "x", plan.crowd).await? {
            whole(&text, "\nx\n")?;
        }
        let crowd_called = crowd_called.elapsed();
        let each = |time: Duration| micros(time) / 1_000.0 / f64::from(plan.outside);
        Ok([each(one), each(called), micros(crowd) / 1_000.0, micros(crowd_called) / 1_000.0])
    }

    async fn close(self) -> Result<(), Failure> {
        self.client.close().await?;
        let report = self.service.shutdown(Duration::from_secs(10)).await;
        if report.is_clean() { Ok(()) } else { Err(format!("the shutdown is not clean: {report:?}").into()) }
    }
}

fn whole(text: &str, part: &str) -> Result<(), Failure> {
    if text.contains(part) { Ok(()) } else { Err(format!("a wrong answer: {text}").into()) }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
