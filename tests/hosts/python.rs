//! The Python SDK as a client.

use super::expectations::{Host, Scenario, suite};
use super::hall::Hall;
use super::http::Server;
use super::stage::{GONE, Live, PATIENCE, until};
use serde_json::Value;
use std::fs;

/// How a host plays each scenario; once, as a rule.
pub(crate) fn manners(host: &Host) -> &'static [&'static str] {
    // The newest version of the protocol that both sides know, and the one with a handshake.
    if host.name == "mcp-python" { &["auto", "legacy"] } else { &[""] }
}

pub(crate) async fn play(hall: &Hall<'_>, scenario: &Scenario, manner: &str) -> Result<String, String> {
    let server = if scenario.name == "http" { Some(Server::start(hall, None, None).await?) } else { None };
    let client = suite().join("mcp-python/client.py").to_string_lossy().into_owned();
    let mut args = vec![client, manner.to_owned(), scenario.name.to_owned()];
    args.extend(server.as_ref().map(|server| server.url.clone()));
    let mut live = hall.stage.start(&hall.program(), &args, &hall.env, "")?;
    match scenario.name {
        "cancelled" => {
            let ended = hall.interrupted(live).await?;
            let went_on = ended.out.contains("calls");
            return if went_on {
                Err(format!("it went on: {ended:?}"))
            } else {
                Ok("nothing left".to_owned())
            };
        }
        "killed" => {
            hall.killed(live).await?;
            return Ok("nothing left".to_owned());
        }
        "gives-up" => {
            for time in ["1", "2"] {
                nothing_left(hall, &mut live, time).await?;
            }
        }
        _ => {}
    }
    let ended = live.end().await?.well()?;
    let seen: Value =
        serde_json::from_str(&ended.out).map_err(|error| format!("{error}: {:?}", ended.out))?;
    if let Some(server) = server {
        server.stop(hall).await?;
    }
    let outcome = judge(scenario, manner, &seen);
    outcome.map_err(|fault| format!("{fault}: {seen}"))
}

/// The client lives, and what it gave up does not.
async fn nothing_left(hall: &Hall<'_>, live: &mut Live, time: &str) -> Result<(), String> {
    let child = hall.stage.child();
    let mut gone = async |what: &str, patience, holds: &dyn Fn() -> bool| {
        until(what, patience, || match live.has_ended() {
            Some(ended) => Err(format!("it ended before {what}: {ended:?}")),
            None => Ok(holds()),
        })
        .await
    };
    gone("it gave the call up", PATIENCE, &|| child.join(format!("gave-up-{time}")).exists()).await?;
    hall.has_hung()?;
    gone("the child is gone", GONE, &|| hall.stage.children().is_empty()).await?;
    fs::write(child.join(format!("go-on-{time}")), "").map_err(|error| error.to_string())
}

fn judge(scenario: &Scenario, manner: &str, seen: &Value) -> Result<String, String> {
    let calls = seen["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    let fact = |holds: bool, otherwise: &str| holds.then_some(()).ok_or_else(|| otherwise.to_owned());
    let names: Vec<_> = seen["tools"].as_array().into_iter().flatten().map(|tool| &tool["name"]).collect();
    fact(names == ["subagent", "subagent_output"], "these are not the tools")?;
    let protocol = if manner == "legacy" { "2025-11-25" } else { "2026-07-28" };
    fact(seen["protocol"] == protocol, "another protocol was expected")?;
    let text = |call: &Value| call["text"].as_str().unwrap_or_default().to_owned();
    let answered = |call: &Value, part: &str| {
        let output = call["structured"]["output"][0]["text"].as_str().unwrap_or_default();
        call["error"] == false && text(call).contains(part) && output.contains(part)
    };
    let failed = |call: &Value, part: &str| call["error"] == true && text(call).contains(part);
    match (scenario.name, calls) {
        ("one" | "http", [call]) => {
            fact(answered(call, "The child says 42."), "that is no answer")?;
            let progress = seen["progress"].as_array().map(Vec::as_slice).unwrap_or_default();
            fact(!progress.is_empty(), "there was no sign of progress")?;
            let grows = progress.windows(2).all(|two| two[0][0].as_f64() < two[1][0].as_f64());
            fact(grows, "progress has to grow")?;
            Ok("answered".to_owned())
        }
        ("five", calls) if calls.len() == 5 => {
            let each = (1..).zip(calls);
            let all = each.clone().all(|(n, call)| answered(call, &format!("number {n}, ")));
            fact(all, "that is not what each asked for")?;
            let together = each.into_iter().all(|(_, call)| answered(call, "side by side"));
            Ok(if together { "side by side" } else { "one by one" }.to_owned())
        }
        ("fails", [call]) => {
            fact(failed(call, "exit code 3") && failed(call, "no luck today"), "the reason is missing")?;
            Ok("error with its reason".to_owned())
        }
        ("times-out", [call]) => {
            fact(failed(call, "ran out of time") && failed(call, "timed-out"), "it does not say so")?;
            Ok("error that says so".to_owned())
        }
        ("gives-up", [late, cancelled, after]) => {
            fact(late["raised"].is_string() && cancelled["raised"].is_string(), "it did not give up")?;
            fact(answered(after, "Still there."), "the session did not go on")?;
            Ok("child ended".to_owned())
        }
        (other, calls) => Err(format!("{} calls in {other}", calls.len())),
    }
}
