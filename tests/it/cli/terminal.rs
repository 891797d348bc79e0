//! What a person sees on a terminal: the tree, the bar, what the children say, the summary.

use super::support::{configured, program, wait};
use std::path::Path;

/// Runs `subagents` with these words of a shell on a terminal of 24 rows and so many columns; gives all that it drew.
fn drawn(columns: u32, terminal: &str, directory: &Path, args: &str) -> String {
    let shell = format!("stty rows 24 cols {columns}; exec '{}' {args}", env!("CARGO_BIN_EXE_subagents"));
    let mut command = program("script");
    command.args(["-qec", &shell, "/dev/null"]).current_dir(directory);
    command.env("TERM", terminal).env("XDG_CONFIG_HOME", "/no/such/folder").env("SHELL", "/bin/sh");
    command.env("SUBAGENTS__LEDGER", "false");
    let output = wait(command.spawn().expect("script, of util-linux, is there"), Vec::new());
    String::from_utf8(output.stdout).expect("the output is text")
}

const SAYS: &str = "[providers.talks]\nkind = \"exec\"\nmax_concurrent = 2\n\
    command = [\"sh\", \"{}/talks\"]\n";

/// It says something long that would steer the terminal, and fails, so that its answer is not printed.
const SCRIPT: &str = "printf 'first\\n\\033[2J\\033]0;title\\007\\342\\200\\256step of a long \
    日本日本日本日本日本日本日本日本日本日本日本日本日本日本日本日本日本日本END'; sleep 1; exit 3\n";

#[test]
fn the_tree_has_a_bar_and_what_each_child_said_last_and_nothing_steers() {
    let folder = configured(SAYS);
    std::fs::write(folder.path().join("talks"), SCRIPT).expect("it can be written");
    std::fs::write(folder.path().join("prompts"), "a\nb\nc\n").expect("it can be written");
    let seen = drawn(80, "xterm", folder.path(), "run --each prompts --tree");
    assert!(
        seen.starts_with(&format!("subagents: provider talks, of {}", folder.path().display())),
        "{seen:?}"
    );
    assert!(seen.contains("├─ talks prompt 0 · running · waits for its child for "), "{seen:?}");
    assert!(seen.contains("│  ├─ says: step of a long 日本"), "{seen:?}");
    assert!(seen.contains("talks prompt 2 · queued · place 1 · waits for a slot for "), "{seen:?}");
    assert!(seen.contains("] 0/3 done, 2 running, 1 waiting, 0 failed, "), "{seen:?}");
    assert!(seen.contains("=>") && seen.contains("] 2/3 done, 1 running, 2 failed, "), "{seen:?}");
    assert!(seen.contains("3 delegations: 0 completed, 3 failed in "), "{seen:?}");
    for foreign in ["\u{1b}[2J", "title", "\u{202e}", "END", "\u{1b}[31m"] {
        assert!(!seen.contains(foreign), "{foreign:?}: {seen:?}");
    }
}

#[test]
fn a_narrow_terminal_has_no_bar_and_short_lines() {
    let folder = configured(SAYS);
    std::fs::write(folder.path().join("talks"), SCRIPT).expect("it can be written");
    std::fs::write(folder.path().join("prompts"), "a\nb\n").expect("it can be written");
    let seen = drawn(20, "xterm", folder.path(), "run -p talks --each prompts --tree");
    for line in ["   ├─ talks prompt…", "   │  ├─ says: ste…", "0/2 done, 2 runn…"] {
        assert!(seen.contains(line), "{line}: {seen:?}");
    }
    assert!(!seen.contains("[ ") && !seen.contains("step of"), "{seen:?}");
}

#[test]
fn a_bar_alone_tells_how_it_goes_and_one_prompt_has_none() {
    let folder = configured("");
    std::fs::write(folder.path().join("prompts"), "1\n2\n3\n").expect("it can be written");
    let each =
        drawn(80, "xterm", folder.path(), "run --each prompts -j 1 -- sh -c 'sleep 0.4; echo answer {}'");
    assert!(each.contains("] 0/3 done, 1 running, 0 failed, 0s") && each.contains("answer 3"), "{each:?}");
    assert!(each.contains("3 delegations: 3 completed in 1."), "{each:?}");
    let one = drawn(80, "xterm", folder.path(), "run x -- sh -c 'sleep 0.4; echo answer'");
    assert!(one.contains("0/1 done, 1 running, 0 failed, 0s"), "{one:?}");
    assert!(!one.contains("[  ") && !one.contains("delegation"), "{one:?}");
}

#[test]
fn a_dumb_terminal_is_not_drawn_on() {
    let folder = configured("");
    let seen = drawn(80, "dumb", folder.path(), "run x --tree -- sh -c 'sleep 0.4; echo answer'");
    assert!(
        seen.contains("exec · running") && seen.contains("answer\r\n") && !seen.contains('\u{1b}'),
        "{seen:?}"
    );
    let seen = drawn(80, "dumb", folder.path(), "run x -- sh -c 'sleep 0.4; echo answer'");
    assert_eq!(seen, "answer\r\n");
}
