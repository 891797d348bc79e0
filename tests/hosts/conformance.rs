//! The protocol's own conformance suite, over HTTP.

use super::expectations::Scenario;
use super::hall::Hall;
use super::http::Server;

/// Those of its scenarios that ask for nothing but what there is; the others want resources, prompts, or a tool that says
/// certain words.
const SCENARIOS: [&str; 6] = [
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-error",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
];
/// It calls this tool without arguments, which is an error.
pub(crate) const TOOL: &str = "test_error_handling";

pub(crate) async fn play(hall: &Hall<'_>, scenario: &Scenario) -> Result<String, String> {
    if scenario.name != "conformance" {
        return Err(format!("it does not play {}", scenario.name));
    }
    let server = Server::start(hall, None, None).await?;
    let bin = hall.program();
    // It is started by the node beside it: the one on PATH may be too old for it.
    let script = bin.with_file_name("conformance").to_string_lossy().into_owned();
    for name in SCENARIOS {
        let args = [&script, "server", "--url", &server.url, "--scenario", name].map(ToString::to_string);
        let ended = hall.stage.start(&bin, &args, &hall.env, "")?.end().await?;
        let ended = ended.well().map_err(|fault| format!("{name}: {fault}"))?;
        let clean = ended.out.lines().any(|line| {
            line.starts_with("Passed: ")
                && !line.starts_with("Passed: 0")
                && line.ends_with(" 0 failed, 0 warnings")
        });
        if !clean {
            return Err(format!("{name} has not passed: {}", ended.out));
        }
    }
    server.stop(hall).await?;
    Ok("passed".to_owned())
}
