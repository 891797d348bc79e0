//! What comes out, where, and in which form.

use super::support::subagents;
use serde_json::{Value, json};

#[test]
fn a_line_of_json_has_the_keys_that_are_documented() {
    let ended =
        subagents(["run", "x", "--json", "--label", "L", "--", "sh", "-c", "echo p; echo why >&2; exit 3"]);
    let ended = ended.end();
    assert_eq!((ended.code, &*ended.err), (Some(1), ""));
    let keys = [
        "type",
        "index",
        "run",
        "provider",
        "label",
        "stop_reason",
        "output",
        "structured",
        "diagnostic",
        "details",
        "usage",
        "elapsed_ms",
    ];
    let places: Vec<_> = keys.iter().map(|key| ended.out.find(&format!("\"{key}\":")).expect(key)).collect();
    assert!(places.is_sorted(), "{}", ended.out);
    let line = &ended.json()[0];
    assert_eq!(line.as_object().map(serde_json::Map::len), Some(keys.len()), "{line}");
    assert_eq!((&line["type"], &line["index"], &line["label"]), (&json!("result"), &json!(0), &json!("L")));
    assert_eq!((&line["stop_reason"], &line["output"]), (&json!("error"), &json!("p\n")));
    assert_eq!(
        (&line["details"], &line["usage"], &line["structured"]),
        (&json!({}), &Value::Null, &Value::Null)
    );
    let text = line["diagnostic"]["text"].as_str().expect("a text");
    assert!(text.contains("code 3") && text.contains("why"), "{text}");
    assert_eq!(line["diagnostic"].as_object().map(serde_json::Map::len), Some(2));
    assert_eq!(line["run"].as_str().map(str::len), Some(36));
    assert!(line["elapsed_ms"].is_u64());
}

#[test]
fn a_start_that_failed_has_its_code() {
    for (command, code) in [
        ("no-such-program-anywhere", "NOT_ON_PATH"),
        ("/no/such/program", "PROGRAM_NOT_FOUND"),
        ("/etc/passwd", "NOT_EXECUTABLE"),
    ] {
        let ended = subagents(["run", "x", "--json", "--", command]).end();
        assert_eq!(ended.code, Some(1));
        let line = &ended.json()[0];
        assert_eq!(line.as_object().map(serde_json::Map::len), Some(5), "{line}");
        assert_eq!((&line["type"], &line["index"]), (&json!("start_error"), &json!(0)));
        assert_eq!((&line["provider"], &line["code"]), (&json!("exec"), &json!(code)));
        assert!(line["message"].as_str().is_some_and(|message| message.contains(command)), "{line}");

        let ended = subagents(["run", "x", "--", command]).end();
        assert_eq!((ended.code, &*ended.out), (Some(1), ""));
        assert!(ended.err.starts_with(&format!("subagents: {code}: ")), "{}", ended.err);
    }
}

#[test]
fn failures_are_one_line_each_on_stderr() {
    let script = "case {} in b) printf '\\033[31mtwo\\nlines' >&2; exit 1;; *) echo {};; esac";
    let ended = subagents(["run", "--each", "-", "-j", "1", "--label", "w", "--", "sh", "-c", script]);
    let ended = ended.input("a\nb\nc\n").end();
    assert_eq!((ended.code, &*ended.out), (Some(1), "a\nc\n"), "{ended:?}");
    let lines: Vec<_> = ended.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ended.err);
    assert!(lines[0].starts_with("subagents: prompt 1 (w, line 2): error ["), "{}", lines[0]);
    assert!(lines[0].contains("two") && !ended.err.contains('\u{1b}'), "{}", ended.err);
    assert!(lines[1].starts_with("3 delegations: 2 completed, 1 failed in "), "{}", lines[1]);
}

#[test]
fn a_pipe_gets_an_answer_unchanged() {
    let ended = subagents(["run", "x", "--", "printf", "\\033[31mred\\007"]).end();
    assert_eq!((ended.code, &*ended.out), (Some(0), "\u{1b}[31mred\u{7}\n"));
}

#[test]
fn a_deadline_ends_what_is_too_slow_or_too_quiet() {
    for (option, script) in
        [("--timeout", "while echo x; do sleep 0.01; done"), ("--idle-timeout", "echo x; sleep 600")]
    {
        let ended = subagents(["run", "x", "--json", option, "300ms", "--", "sh", "-c", script]).end();
        assert_eq!(ended.code, Some(1), "{option}: {ended:?}");
        let line = &ended.json()[0];
        assert_eq!(line["stop_reason"], "timed-out", "{option}: {line}");
        assert!(line["output"].as_str().is_some_and(|output| output.starts_with("x\n")), "{option}: {line}");
        assert!(line["elapsed_ms"].as_u64() >= Some(300), "{option}: {line}");
        assert_eq!(ended.left, Vec::<String>::new(), "{option}");
        let ended = subagents(["run", "x", option, "300ms", "--", "sh", "-c", script]).end();
        assert!(ended.err.contains(&format!("({option} 300ms)")), "{}", ended.err);
    }
}

#[test]
fn the_working_directory_is_the_one_asked_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path().canonicalize().expect("it is there");
    let path = folder.to_str().expect("a plain path");
    assert_eq!(subagents(["run", "x", "--cwd", path, "--", "pwd", "-P"]).end().out, format!("{path}\n"));
}

#[test]
fn the_tree_is_printed_plainly_where_there_is_no_terminal() {
    let ended =
        subagents(["run", "x", "--tree", "--label", "work", "--", "sh", "-c", "sleep 1; echo hi"]).end();
    assert_eq!((ended.code, &*ended.out), (Some(0), "hi\n"), "{ended:?}");
    assert!(ended.err.contains("exec work · running"), "{}", ended.err);
    assert!(ended.err.contains(" sh\n") && !ended.err.contains('\u{1b}'), "{}", ended.err);
}

#[test]
fn the_tree_tells_many_prompts_apart() {
    let ended = subagents(["run", "--each", "-", "--tree", "--", "sleep", "{}"]).input("3\n3.1\n").end();
    for row in ["exec prompt 0 · running", "exec prompt 1 · running"] {
        assert!(ended.err.contains(row), "{}", ended.err);
    }
}
