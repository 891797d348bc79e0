//! Writing a provider: a child that is neither an agent nor a process, under the same contract as all others.
//!
//! `cargo run --example provider`

use std::{error::Error, time::Duration};
use subagents::{
    Capabilities, Child, Closed, Content, Diagnostic, FailureCode, Instant, Progress, ProviderFailure,
    ResultError, RunContext, StartContext, StartError, StartRequest, SubagentProvider, SubagentResult,
    SubagentService, provider_fn,
};

/// Counts down from the number in its prompt, a tick at a time.
struct Countdown {
    tick: Duration,
}

struct Counting {
    from: u32,
    tick: Duration,
}

impl SubagentProvider for Countdown {
    type Child = Counting;

    // Success here is the publication: from now on the run has a handle and events.
    async fn start(&self, cx: StartContext) -> Result<Counting, StartError> {
        let prompt = cx.prompt().to_text();
        let from = prompt.trim().parse().map_err(|error| {
            ProviderFailure::new(FailureCode::ProviderFailed, "the prompt is no number; ask for one")
                .with_source(error)
        })?;
        Ok(Counting { from, tick: self.tick })
    }
}

impl Child for Counting {
    async fn run(&mut self, cx: RunContext) -> Result<SubagentResult, ResultError> {
        let mut said = String::new();
        for left in (0..self.from).rev() {
            tokio::select! {
                () = tokio::time::sleep(self.tick) => {}
                // A cancelled child may return what it has; the runtime adds the cause.
                () = cx.cancelled() => return Ok(SubagentResult::aborted(said)),
            }
            let line = format!("{left} ");
            // A sign of life: it resets the idle deadline and is the partial answer if the run is cut short.
            cx.progress(Progress::Text(&line));
            said += &line;
        }
        Ok(if said.is_empty() {
            SubagentResult::error(Diagnostic::new("nothing-to-count", "zero is no number to count from"))
        } else {
            SubagentResult::completed(said)
        })
    }

    async fn close(self, _deadline: Instant) -> Closed {
        Closed::Clean
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let upper = provider_fn(Capabilities::NONE, |start, _run| async move {
        Ok(SubagentResult::completed(start.prompt().to_text().to_uppercase()))
    });
    let service = SubagentService::builder()
        .provider("countdown", Countdown { tick: Duration::from_millis(20) })
        .provider("upper", upper)
        .build()?;
    let root = service.root(std::env::current_dir()?)?;
    for (provider, prompt) in
        [("upper", "the smallest provider"), ("countdown", "5"), ("countdown", "0"), ("countdown", "x")]
    {
        match service.delegate(provider, StartRequest::new(&root, Content::text(prompt))).await {
            Ok(result) => {
                let why = result.diagnostic.as_ref().map(|why| format!(" [{why}]")).unwrap_or_default();
                say(&format!("{provider}({prompt}): {}{why} {}", result.stop_reason, result.text()));
            }
            Err(error) => say(&format!("{provider}({prompt}): {}: {error}", error.code())),
        }
    }
    let _ = service.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

#[expect(clippy::print_stderr, reason = "an example has nowhere else to speak")]
fn say(line: &str) {
    eprintln!("{line}");
}
