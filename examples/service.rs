//! Embedding in a service: delegate while requests come in, and leave nothing behind on the way out.
//!
//! `cargo run --example service` runs until Ctrl-C.

use std::{error::Error, time::Duration};
use subagents::{Deadlines, Exec, SubagentService};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let service = SubagentService::builder()
        .provider("wc", Exec::new("wc").arg("-w"))
        .limit("wc", 8)
        .queue(1_000)
        .deadlines(Deadlines::new().total(Duration::from_secs(30)))
        .build()?;
    let root = service.root(std::env::current_dir()?)?;

    let work = async {
        for round in 1.. {
            let prompts = (0..20).map(move |i| "word ".repeat(round * i + 1));
            let mut batch = service.batch(&root, "wc").label("count").requests(prompts);
            let mut words = 0;
            while let Some(item) = batch.next().await {
                match item.outcome {
                    Ok(result) => words += result.text().trim().parse::<usize>().unwrap_or(0),
                    Err(error) => say(&format!("{}: {error}", error.code())),
                }
            }
            say(&format!("round {round}: {words} words"));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = work => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }

    // Admission closes, everything is cancelled top-down, and after ten seconds killed.
    let report = service.shutdown(Duration::from_secs(10)).await;
    let (settled, killed, leaked) = (report.settled, report.killed, &report.leaked);
    say(&format!("at shutdown: settled {settled}, killed {killed}, leaked {leaked:?}"));
    Ok(())
}

#[expect(clippy::print_stderr, reason = "an example has nowhere else to speak")]
fn say(line: &str) {
    eprintln!("{line}");
}
