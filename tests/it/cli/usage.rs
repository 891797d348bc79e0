//! What is refused before anything starts, and the help.

use super::support::subagents;

#[test]
fn what_makes_no_sense_is_refused_with_a_way_out() {
    for (args, hint) in [
        (&["run", "x"][..], "after `--`"),
        (&["run", "x", "--"], "after `--`"),
        (&["run", "x", "--", ""], "after `--`"),
        (&["run", "x", "cat"], "unexpected argument"),
        (&["run", "--", "cat"], "give a PROMPT"),
        (&["run", "", "--", "cat"], "give a PROMPT"),
        (&["run", " \n", "--", "cat"], "give a PROMPT"),
        (&["run", "x", "--each", "-", "--", "cat"], "cannot be used with"),
        (&["run", "--each", "/no/such/file", "--", "cat"], "/no/such/file"),
        (&["run", "x", "-j", "2", "--", "cat"], "--each"),
        (&["run", "--each", "-", "-j", "0", "--", "cat"], "--jobs"),
        (&["run", "x", "--timeout", "30", "--", "cat"], "`30s`"),
        (&["run", "x", "--timeout", "0s", "--", "cat"], "`30s`"),
        (&["run", "x", "--idle-timeout", "soon", "--", "cat"], "`30s`"),
        (&["run", "x", "--label", "", "--", "cat"], "--label"),
        (&["run", "x", "--cwd", "/no/such/dir", "--", "cat"], "/no/such/dir"),
        (&["run", "x", "--presona", "y", "--", "cat"], "--presona"),
        (&["run", "--presona", "--", "cat"], "can be piped to stdin"),
        (&["run", "--jsno", "x", "--", "cat"], "'--json'"),
        (&["run", "x", "-p", "wc", "--", "cat"], "cannot be used with"),
        (&["run", "x", "-p", ""], "--provider"),
        (&["run", "x", "-p", "wc"], "no provider is named `wc`: no provider is configured"),
        (&["run", "x", "--config", "/no/such.toml", "--", "cat"], "/no/such.toml: it cannot be read"),
        (&["providers", "x"], "unexpected argument"),
        (&["walk"], "walk"),
        (&[], "Examples:"),
    ] {
        let ended = subagents(args).end();
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        assert!(ended.err.contains(hint), "{args:?}: {}", ended.err);
        assert_eq!(ended.out, "", "{args:?}");
    }
}

#[test]
fn help_has_examples_and_the_version_is_told() {
    for args in
        [&["--help"][..], &["-h"], &["run", "--help"], &["run", "-h"], &["help", "run"], &["providers", "-h"]]
    {
        let ended = subagents(args).end();
        assert_eq!(ended.code, Some(0), "{args:?}");
        assert!(ended.out.contains("Examples:\n  subagents "), "{args:?}: {}", ended.out);
        assert!(!ended.out.contains('\u{1b}'), "no colour where there is no terminal");
    }
    assert_eq!(subagents(["--version"]).end().out, concat!("subagents ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn the_long_help_names_exit_codes_and_environment() {
    let help = subagents(["run", "--help"]).end().out;
    for word in [
        "129, 130, 143",
        "141",
        "SUBAGENTS_MAX_DEPTH",
        "SUBAGENTS_LOG",
        "Blank lines",
        "elapsed_ms",
        "max_concurrent",
    ] {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn a_depth_comes_from_outside_and_goes_on_inside() {
    let tell = ["run", "x", "--", "sh", "-c", "echo $SUBAGENTS_DEPTH of $SUBAGENTS_MAX_DEPTH"];
    assert_eq!(subagents(tell).end().out, "1 of\n");
    let deep = subagents(tell).env("SUBAGENTS_DEPTH", "2").env("SUBAGENTS_MAX_DEPTH", "3").end();
    assert_eq!((deep.code, &*deep.out), (Some(0), "3 of 3\n"));
    let deeper = subagents(tell).env("SUBAGENTS_DEPTH", "3").env("SUBAGENTS_MAX_DEPTH", "3").end();
    assert_eq!(deeper.code, Some(1));
    assert!(deeper.err.contains("DEPTH_EXCEEDED"), "{}", deeper.err);
    for name in ["SUBAGENTS_DEPTH", "SUBAGENTS_MAX_DEPTH"] {
        let wrong = subagents(tell).env(name, "-1").end();
        assert_eq!(wrong.code, Some(2));
        assert!(wrong.err.contains(&format!("{name} is `-1`")), "{}", wrong.err);
    }
}

#[test]
fn a_log_is_written_where_it_is_asked_for() {
    let logged = subagents(["run", "x", "--", "cat"]).env("SUBAGENTS_LOG", "trace").end();
    assert_eq!((logged.code, &*logged.out), (Some(0), "x\n"), "{logged:?}");
    assert!(logged.err.contains("subagents_process"), "{}", logged.err);
    let wrong = subagents(["run", "x", "--", "cat"]).env("SUBAGENTS_LOG", "a=b=c").end();
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}
