//! The ends that an agent brings about itself, and what is left of it.

use super::{
    Script,
    support::{Host, category, played, within},
};
use serde_json::json;
use std::{fs, time::Duration};
use subagents::StopReason;
use tokio::time::Instant;

#[tokio::test]
async fn d02_the_end_of_the_output_is_no_success() {
    for code in [0, 1] {
        let result = played(&Script::prompted().chunk("one ").chunk("two").exit(code)).await;
        assert_eq!((&result.stop_reason, category(&result)), (&StopReason::Error, "exited"), "{result:?}");
        assert_eq!(result.text(), "one two");
        let text = result.diagnostic.as_ref().expect("why").text();
        assert!(text.contains(&format!("exit code {code} before its turn ended")), "{text}");
    }
}

#[tokio::test]
async fn d06_an_exit_in_mid_turn_is_an_error_with_its_last_words() {
    let result = played(&Script::prompted().chunk("part").stderr("out of memory").exit(0)).await;
    assert_eq!(category(&result), "exited");
    let text = result.diagnostic.as_ref().expect("why").text();
    assert!(text.contains("exit code 0") && text.contains("stderr: out of memory"), "{text}");
}

#[tokio::test]
async fn d06_the_agents_stdin_stays_open_until_it_has_settled() {
    // A shell that reads its stdin tells when that has ended, and answers only if it has not.
    let temp = tempfile::tempdir().expect("a folder");
    let seen = temp.path().join("seen");
    let answer = r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}"#;
    let shell = format!(
        "exec 4<&0; (cat <&4 >/dev/null; echo end >{0}) & sleep 0.3; test -e {0} || echo '{answer}' >&3; wait",
        seen.display()
    );
    let host = Host::of(&Script::prompted().chunk("ok").become_shell(&shell));
    let result = host.delegate("x").await;
    assert_eq!((&result.stop_reason, result.text()), (&StopReason::Completed, "ok".to_owned()), "{result:?}");
    // And then it was closed.
    assert_eq!(fs::read_to_string(&seen).expect("it was seen"), "end\n");
    host.end().await;
}

#[tokio::test]
async fn b02_a_closed_stdout_settles_at_once_and_says_that_something_may_be_done() {
    let temp = tempfile::tempdir().expect("a folder");
    let marker = temp.path().join("done");
    let script = Script::prompted()
        .chunk("working")
        .become_shell(&format!("touch {}; exec 3>&-; exec sleep 1000", marker.display()));
    let host = Host::of(&script);
    let run = host.start().await;
    let begun = Instant::now();
    let result = within("a result", run.result()).await.expect("a value");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!((&result.stop_reason, category(&result)), (&StopReason::Error, "transport-closed"));
    let text = result.diagnostic.as_ref().expect("why").text();
    assert!(text.contains("may have had effects"), "{text}");
    assert_eq!(result.text(), "working");
    assert!(marker.exists());
    run.dispose().await.expect("nothing is left");
    assert_eq!(host.mark.alive(), [""; 0]);
    host.end().await;
}

#[tokio::test]
async fn spec_18_5_an_agent_that_was_killed_in_mid_turn_is_an_error() {
    let host = Host::of(&Script::prompted().chunk("part").become_shell("kill -9 $$"));
    let result = host.delegate("x").await;
    assert_eq!((category(&result), result.text()), ("exited", "part".to_owned()));
    assert!(result.diagnostic.as_ref().expect("why").text().contains("SIGKILL"), "{result:?}");
    host.end().await;
}

#[tokio::test]
async fn spec_18_5_whatever_the_agent_has_started_is_gone_with_it() {
    // A shell of its own session, as agents start their tools.
    let script = Script::prompted()
        .run("setsid sleep 1000 >/dev/null 2>&1 3>&- & sleep 1000 >/dev/null 2>&1 3>&- &")
        .chunk("done")
        .stop("end_turn");
    let host = Host::of(&script);
    let result = host.delegate("x").await;
    assert_eq!(result.text(), "done");
    assert_eq!(host.mark.alive(), [""; 0]);
    host.end().await;
}

#[tokio::test]
async fn spec_18_5_a_session_is_closed_where_the_agent_offers_that() {
    let temp = tempfile::tempdir().expect("a folder");
    let marker = temp.path().join("closed");
    let close = json!({"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"close": {}}}});
    let script = Script::bare()
        .expect("initialize")
        .reply(close)
        .expect("session/new")
        .reply(json!({"sessionId": "the-session"}))
        .expect("session/prompt")
        .chunk("ok")
        .stop("end_turn")
        .expect("session/close")
        .run(&format!("touch {}", marker.display()))
        .reply(json!({}));
    let host = Host::of(&script);
    assert_eq!(host.delegate("x").await.text(), "ok");
    assert!(marker.exists(), "it was not asked to close its session");
    host.end().await;
}

#[tokio::test]
async fn spec_18_5_an_agent_that_hears_nothing_is_killed_in_time() {
    let host = Host::of(
        &Script::prompted()
            .chunk("ok")
            .stop("end_turn")
            .become_shell("trap '' TERM INT HUP; while :; do sleep 0.05; done"),
    );
    let begun = Instant::now();
    let result = host.delegate("x").await;
    assert_eq!(result.text(), "ok");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    host.end().await;
}

#[tokio::test]
async fn d06_an_exit_ends_the_turn_although_a_descendant_holds_the_pipe() {
    let holder = "setsid sleep 1000 >/dev/null 2>&1 &";
    for (script, at_start) in [
        (Script::prompted().chunk("part").run(holder).exit(3), false),
        (Script::bare().expect("initialize").run(holder).exit(3), true),
    ] {
        let host = Host::of(&script);
        let begun = Instant::now();
        if at_start {
            let error = host.refusal(host.ask("x")).await;
            assert_eq!(error.code(), "EXITED_BEFORE_READY", "{error}");
        } else {
            let result = host.delegate("x").await;
            assert_eq!((category(&result), result.text()), ("exited", "part".to_owned()), "{result:?}");
        }
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        host.end().await;
    }
}

/// Two seconds to the settlement, and the end of the process.
const SOON: Duration = Duration::from_secs(4);

#[tokio::test]
async fn b02_a_closed_stdin_is_the_end_of_a_conversation_too() {
    let host = Host::of(&Script::opened().become_shell("exec 0<&-; exec sleep 1000"));
    let begun = Instant::now();
    let result = host.delegated(host.ask(&"x".repeat(1_000_000))).await;
    let found = (&result.stop_reason, category(&result));
    assert_eq!(found, (&StopReason::Error, "transport-closed"), "{result:?}");
    assert!(result.diagnostic.as_ref().expect("why").text().contains("closed its stdin"), "{result:?}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    host.end().await;
}

#[tokio::test]
async fn d06_an_exit_is_seen_although_a_descendant_goes_on_writing() {
    let line = r#"{"jsonrpc":"2.0","method":"_vendor/noise","params":{}}"#;
    let flood = format!("setsid yes '{line}' >&3 2>/dev/null & sleep 0.2; exit 3");
    let host = Host::of(&Script::prompted().chunk("part").become_shell(&flood));
    let begun = Instant::now();
    let result = host.delegate("x").await;
    assert_eq!((category(&result), result.text()), ("exited", "part".to_owned()), "{result:?}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    host.end().await;
}
