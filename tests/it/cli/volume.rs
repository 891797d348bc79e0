//! Many prompts: each is accounted for once, and nothing is left.

use super::support::{subagents, subagents_with_files};
use std::{collections::HashMap, fmt::Write};

#[test]
fn a_thousand_prompts_are_accounted_for_one_by_one() {
    let (mut input, mut expected) = (String::new(), HashMap::new());
    for i in 0_u64..1_000 {
        let (prompt, outcome) = match i {
            // Too long for an argument.
            250 | 750 => ("x".repeat(140_000), "PROMPT_TOO_LONG"),
            _ if i % 50 == 7 => (format!("hang {i}"), "timed-out"),
            _ if i % 10 == 3 => (format!("fail {i}"), "error"),
            _ => (format!("ok {i}"), "completed"),
        };
        let _ = writeln!(input, "{prompt}");
        expected.insert(i, (outcome, prompt));
    }
    let script = "case $1 in hang*) sleep 600 & sleep 600;; fail*) exit 7;; *) echo \"$1\";; esac";
    let args =
        ["run", "--each", "-", "-j", "16", "--json", "--timeout", "4s", "--", "sh", "-c", script, "sh", "{}"];
    let ended = subagents(args).input(input).end();
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert_eq!(ended.left, Vec::<String>::new());
    let mut runs = std::collections::HashSet::new();
    for line in ended.json() {
        let index = line["index"].as_u64().expect("an index");
        let (outcome, prompt) = expected.remove(&index).expect("each once");
        let told = line["stop_reason"].as_str().or(line["code"].as_str()).expect("an outcome");
        assert_eq!(told, outcome, "{line}");
        if outcome == "completed" {
            assert_eq!(line["output"].as_str(), Some(&*format!("{prompt}\n")));
        }
        if let Some(run) = line["run"].as_str() {
            assert!(runs.insert(run.to_owned()), "two runs have one id: {line}");
        }
    }
    assert!(expected.is_empty(), "{expected:?}");
    let summary = "1000 delegations: 878 completed, 102 failed, 20 timed out in ";
    assert!(ended.err.starts_with(summary), "{}", ended.err);
}

#[test]
fn prompts_wait_in_the_file_and_not_in_memory() {
    // A pipe that never ends, read as there is room: the program would never end if it read all of it first.
    let ended = subagents([
        "run",
        "yes",
        "--",
        "sh",
        "-c",
        "yes | \"$0\" run --each - -j 2 -- cat | head -n 50",
        env!("CARGO_BIN_EXE_subagents"),
    ]);
    let ended = ended.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.out, "y\n".repeat(50));
    assert_eq!(ended.left, Vec::<String>::new());
}

#[test]
fn many_children_at_once_find_room_below_a_small_soft_limit() {
    let args = ["run", "--each", "-", "-j", "60", "--", "sh", "-c", "sleep 0.5; cat"];
    let ended = subagents_with_files(64, args).input("x\n".repeat(60)).end();
    assert_eq!((ended.code, ended.out.lines().count()), (Some(0), 60), "{}", ended.err);
    assert_eq!(ended.left, Vec::<String>::new());
}
