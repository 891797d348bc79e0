//! Where prompts come from and how they reach the program.

use super::support::{program, read_until, subagents, wait};
use std::io::Write;

#[test]
fn braces_in_an_argument_are_the_prompt_and_stdin_gets_it_otherwise() {
    for (args, out) in [
        (&["run", "hi", "--", "echo", "<{}>", "{}"][..], "<hi> hi\n"),
        (&["run", "hi", "--", "cat"], "hi\n"),
        (&["run", "hi", "--", "sh", "-c", "cat; echo {}"], "hi\n"),
        (&["run", "- hi", "--", "cat"], "- hi\n"),
        (&["run", "--label", "x", "--json", "hi", "--", "printf", "%s", "--json"], ""),
    ] {
        let ended = subagents(args).end();
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        assert!(out.is_empty() || ended.out == out, "{args:?}: {ended:?}");
    }
}

#[test]
fn a_prompt_from_stdin_is_unchanged() {
    let ended = subagents(["run", "--", "wc", "-c"]).input("a\r\nb\n\n").end();
    assert_eq!((ended.code, ended.out.trim()), (Some(0), "6"), "{ended:?}");
    let ended = subagents(["run", "--", "cat"]).input(b"a\xff".as_slice()).end();
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("not UTF-8 (at byte 1)"), "{}", ended.err);
}

#[test]
fn a_large_prompt_arrives_whole() {
    let prompt: String = ('a'..='z').cycle().step_by(7).take(300 * 1024).collect();
    let sum = program("cksum").spawn().expect("cksum is there");
    let sum = String::from_utf8(wait(sum, prompt.clone().into()).stdout).expect("cksum writes text");
    assert!(sum.contains("307200"), "{sum}");
    for (args, input) in [
        (&["run", "--", "cksum"][..], prompt.clone()),
        (&["run", "--each", "-", "--", "cksum"], format!("{prompt}\r\n")),
    ] {
        let ended = subagents(args).input(input).end();
        assert_eq!((ended.code, &ended.out), (Some(0), &sum), "{args:?}");
    }
}

#[test]
fn each_line_is_a_prompt_and_blank_ones_are_told() {
    let text = "one\r\n\n  \ntwo words\r\nthree";
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), text).expect("it can be written");
    let path = file.path().to_str().expect("a plain path");
    for (each, input) in [(path, ""), ("-", text)] {
        let ended = subagents(["run", "--each", each, "-j", "1", "--", "echo", "<{}>"]).input(input).end();
        assert_eq!((ended.code, &*ended.out), (Some(0), "<one>\n<two words>\n<three>\n"), "{ended:?}");
        assert!(ended.err.contains("2 blank lines were skipped"), "{}", ended.err);
        assert_eq!(ended.err.lines().count(), 1, "nobody watches: {}", ended.err);
    }
}

#[test]
fn no_line_at_all_is_told_and_no_failure() {
    let ended = subagents(["run", "--each", "-", "--", "cat"]).input("\n").end();
    assert_eq!((ended.code, &*ended.out), (Some(0), ""));
    assert!(ended.err.contains("no prompt"), "{}", ended.err);
}

#[test]
fn a_line_that_is_no_text_ends_it_with_its_number() {
    let ended =
        subagents(["run", "--each", "-", "--", "cat"]).input(b"one\n\ntw\xffo\nthree\n".as_slice()).end();
    assert_eq!((ended.code, &*ended.out), (Some(2), "one\n"), "{ended:?}");
    assert!(ended.err.contains("stdin, line 3 is not UTF-8"), "{}", ended.err);
    let folder = std::env::temp_dir();
    let folder = folder.to_str().expect("a plain path");
    let ended = subagents(["run", "--each", folder, "--", "cat"]).end();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.err.contains("it is a directory"), "{}", ended.err);
}

#[test]
fn answers_come_while_prompts_are_still_to_come() {
    let mut live = subagents(["run", "--each", "-", "-j", "2", "--", "cat"]).start();
    let mut stdin = live.child.stdin.take().expect("a pipe");
    let mut stdout = live.child.stdout.take().expect("a pipe");
    for prompt in ["one\n", "two\n", "three\n"] {
        stdin.write_all(prompt.as_bytes()).expect("it reads");
        assert_eq!(read_until(&mut stdout, "\n"), prompt);
    }
    drop(stdin);
    let ended = live.end();
    assert_eq!((ended.code, ended.left), (Some(0), vec![]));
}
