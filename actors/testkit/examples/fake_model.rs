//! A model for any agent, on the loopback: it does what the directives in the prompt say.
//!
//! ```sh
//! cargo run -p subagents-testkit --features model-server --example fake_model -- 8009
//! ```
//!
//! Without a port the system chooses one. Its address goes to stdout; each request is a line on stderr, and so is each
//! answer that its client did not wait for.

use std::{env, error::Error, io::Write, time::Duration};
use subagents_testkit::model::{FakeModel, ModelRequest, Reply};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let port = env::args().nth(1).map_or(Ok(0), |port| port.parse())?;
    let script = |request: &ModelRequest| {
        let manner = if request.is_streaming() { "streamed" } else { "whole" };
        let tools = request.tools().count();
        say(&format!("{} {manner}, {tools} tools: {:?}", request.protocol(), request.prompt()));
        Reply::from_prompt(request)
    };
    let model = FakeModel::builder().port(port).script(script).start().await?;
    writeln!(std::io::stdout(), "{}", model.url())?;
    say(&format!(
        "# Claude Code
export ANTHROPIC_BASE_URL={} ANTHROPIC_API_KEY=none
# Gemini CLI, with --model gemini-2.5-pro: its default asks which model to ask
export GOOGLE_GEMINI_BASE_URL={} GEMINI_API_KEY=none
# Qwen Code, and most others; Codex and opencode take theirs from a configuration (tests/peers/agents/*/home)
export OPENAI_BASE_URL={} OPENAI_API_KEY=none OPENAI_MODEL=fake-model",
        model.anthropic_base(),
        model.gemini_base(),
        model.openai_base()
    ));
    say("until Ctrl-C; try the prompt: [[tool:Bash {\"command\": \"date\"}]] [[reply:it is {{tool}}]]");
    let told = async {
        for abandoned in 1.. {
            model.until(|traffic| traffic.abandoned >= abandoned).await;
            say(&format!("a client left before its answer was there, {} under way", model.in_flight()));
        }
    };
    tokio::select! {
        () = told => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    let _ = tokio::time::timeout(Duration::from_secs(5), model.stop()).await;
    Ok(())
}

#[expect(clippy::print_stderr, reason = "an example has nowhere else to speak")]
fn say(line: &str) {
    eprintln!("{line}");
}
