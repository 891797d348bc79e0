//! The MCP Inspector's command line: a client for each call.

use super::expectations::Scenario;
use super::hall::Hall;
use super::http::Server;
use super::stage::Ended;
use serde_json::Value;

pub(crate) async fn play(hall: &Hall<'_>, scenario: &Scenario) -> Result<String, String> {
    let server = if scenario.name == "http" { Some(Server::start(hall, None, None).await?) } else { None };
    let target = server
        .as_ref()
        .map_or_else(|| vec!["subagents".to_owned(), "mcp".to_owned()], |server| vec![server.url.clone()]);
    let outcome = match scenario.name {
        "one" | "http" => {
            let listed = asked(hall, &target, &["tools/list"]).await?;
            let tools = listed["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
            let names: Vec<_> = tools.iter().map(|tool| &tool["name"]).collect();
            if names != ["subagent", "subagent_output"] {
                return Err(format!("these are not the tools: {listed}"));
            }
            let result = called(hall, &target, "answer The child says 42.").await?;
            let text = result["content"][0]["text"].as_str().unwrap_or_default();
            let output = &result["structuredContent"]["output"][0]["text"];
            let answered = result["isError"] != true && text.contains("\nThe child says 42.\n");
            if !answered || output != "The child says 42." {
                return Err(format!("that is no answer: {result}"));
            }
            // The error that is not the child's, but of the call.
            let wrong =
                asked(hall, &target, &["tools/call", "--tool-name", "subagent", "--tool-arg", "propmt=x"]);
            let wrong = wrong.await?;
            if wrong["isError"] != true || !wrong.to_string().contains("propmt") {
                return Err(format!("wrong arguments are not told: {wrong}"));
            }
            "answered"
        }
        "fails" => {
            failed(hall, &target, "fails", &["exit code 3", "no luck today"]).await?;
            "error with its reason"
        }
        "times-out" => {
            failed(hall, &target, "hangs", &["ran out of time", "timed-out"]).await?;
            hall.has_hung()?;
            "error that says so"
        }
        other => return Err(format!("it does not play {other}")),
    };
    if let Some(server) = server {
        server.stop(hall).await?;
    }
    Ok(outcome.to_owned())
}

async fn failed(hall: &Hall<'_>, target: &[String], prompt: &str, parts: &[&str]) -> Result<(), String> {
    let result = called(hall, target, prompt).await?;
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    let told = result["isError"] == true && parts.iter().all(|part| text.contains(part));
    told.then_some(()).ok_or_else(|| format!("{parts:?} is not what it says: {result}"))
}

async fn called(hall: &Hall<'_>, target: &[String], prompt: &str) -> Result<Value, String> {
    let prompt = format!("prompt={prompt}");
    let call = ["tools/call", "--tool-name", "subagent", "--tool-arg", "description=a short task", &prompt];
    asked(hall, target, &call).await
}

/// What it prints is the result.
async fn asked(hall: &Hall<'_>, target: &[String], method: &[&str]) -> Result<Value, String> {
    let mut args = vec!["--cli".to_owned()];
    args.extend(target.iter().cloned());
    args.push("--method".to_owned());
    args.extend(method.iter().map(ToString::to_string));
    let Ended { out, .. } = hall.stage.start(&hall.program(), &args, &hall.env, "")?.end().await?.well()?;
    serde_json::from_str(&out).map_err(|error| format!("{error}: {out:?}"))
}
