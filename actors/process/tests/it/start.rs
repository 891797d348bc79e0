//! Starting: every typed error, and what a child gets.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use subagents_process::{Command, Exit, SpawnError};

use crate::support::{read_all, sh};

fn file(directory: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

fn error(command: &Command) -> SpawnError {
    // A sibling test may fork while a file that we have just written is still open in it: "text file busy".
    loop {
        let error = command.spawn().expect_err(&format!("{command:?}"));
        let busy = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        if busy.is_none_or(|busy| busy.kind() != std::io::ErrorKind::ExecutableFileBusy) {
            return error;
        }
    }
}

#[tokio::test]
async fn each_start_error_is_typed_and_says_what_to_do() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let plain = file(dir, "plain", "text", 0o644);
    let text = file(dir, "text", "neither program nor script", 0o755);
    let script = file(dir, "script", "#!/no/such/interpreter -x\n", 0o755);
    let env_script = file(dir, "env-script", "#!/usr/bin/env -S no-such-interpreter --flag\n", 0o755);
    let long = "x".repeat(128 * 1024);
    let closed = dir.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();

    let cases = [
        (Command::new("/no/such/program", "/"), "PROGRAM_NOT_FOUND", "/no/such/program does not exist"),
        (Command::new("./absent", dir), "PROGRAM_NOT_FOUND", "correct the path"),
        (Command::new("no-such-program", "/").env("PATH", "/bin:/x"), "NOT_ON_PATH", "PATH (/bin:/x)"),
        (Command::new("", "/"), "NOT_ON_PATH", "install it"),
        (Command::new("cat -A", "/"), "NOT_ON_PATH", "not split into words"),
        // Whoever may enter it or not: it is not there.
        (Command::new("no-such-program", "/").env("PATH", &closed), "NOT_ON_PATH", "install it"),
        // The child's PATH counts, and its relative entries do not.
        (Command::new("sh", "/").env("PATH", "/x:bin:"), "NOT_ON_PATH", "PATH (/x:bin:)"),
        (Command::new(&plain, "/"), "NOT_EXECUTABLE", "chmod +x"),
        (Command::new("plain", "/").env("PATH", dir), "NOT_EXECUTABLE", "chmod +x"),
        (Command::new(dir, "/"), "NOT_EXECUTABLE", "a directory"),
        (Command::new(&text, "/"), "NOT_EXECUTABLE", "#! line"),
        (Command::new(&script, "/"), "INTERPRETER_NOT_FOUND", "/no/such/interpreter,"),
        (Command::new(&env_script, "/"), "INTERPRETER_NOT_FOUND", "no-such-interpreter,"),
        (Command::new("sh", "relative"), "CWD_NOT_USABLE", "not absolute"),
        (Command::new("sh", "/no/such/dir"), "CWD_NOT_USABLE", "does not exist"),
        (Command::new("sh", &plain), "CWD_NOT_USABLE", "not a directory"),
        (Command::new("sh", "/").arg(&long), "PROMPT_TOO_LONG", "on stdin"),
        (Command::new("sh", "/").args(vec![&long[1..]; 100]), "PROMPT_TOO_LONG", "on stdin"),
        (Command::new("sh\0", "/"), "SPAWN_FAILED", "could not be started: "),
        (Command::new("sh", "/").args(["-c", "a\0b"]), "SPAWN_FAILED", "could not be started: "),
        (Command::new("sh", "/").env("A=B", ""), "SPAWN_FAILED", "could not be started: "),
        (Command::new("sh", "/").env("A", "\0"), "SPAWN_FAILED", "could not be started: "),
    ];
    for (command, code, part) in cases {
        let error = error(&command);
        let text = error.to_string();
        assert_eq!(error.code(), code, "{command:?}: {text}");
        assert!(text.contains(part), "{text}");
        assert!(!text.ends_with('.'), "{text}");
        assert_eq!(error.source().is_some(), code == "SPAWN_FAILED", "{text}");
    }
}

#[tokio::test]
async fn a_directory_that_may_not_be_entered_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let closed = temp.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
    // The superuser enters anything that anybody may enter or not.
    if !rustix::process::geteuid().is_root() {
        assert_eq!(error(&Command::new("sh", &closed)).code(), "CWD_NOT_USABLE");
    }
}

#[test]
fn outside_a_runtime_it_is_an_error() {
    let error = Command::new("sh", "/").spawn().unwrap_err();
    assert!(error.source().unwrap().to_string().contains("no tokio runtime"));
}

#[tokio::test]
async fn a_child_gets_its_directory_its_arguments_and_a_clean_environment() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().canonicalize().unwrap();
    let mut process = Command::new("sh", &dir)
        .args(["-c", "pwd; printf '[%s]' \"$@\"; echo; env", "sh", "a b", "$HOME; rm", ""])
        .env("SUBAGENTS_DEPTH", "1")
        .env("OPEN_TOKEN", "given")
        .spawn()
        .unwrap();
    let output = String::from_utf8(read_all(&mut process).await).unwrap();
    let mut lines = output.lines();
    assert_eq!(lines.next(), dir.to_str());
    assert_eq!(lines.next(), Some("[a b][$HOME; rm][]"));
    let names: Vec<_> = lines.filter_map(|line| line.split_once('=')).collect();
    assert!(names.contains(&("SUBAGENTS_DEPTH", "1")) && names.contains(&("OPEN_TOKEN", "given")));
    for (name, _) in names {
        let kept = ["SUBAGENTS_DEPTH", "SUBAGENTS_SCOPE", "OPEN_TOKEN"].contains(&name);
        assert!(kept || !(name.starts_with("SUBAGENTS_") || subagents_process::looks_secret(name.as_ref())));
    }
    assert_eq!(process.wait().await, Exit::Code(0));
}

#[tokio::test]
async fn a_relative_program_is_looked_for_in_the_childs_directory() {
    let mut process = Command::new("bin/echo", "/").arg("here").spawn().unwrap();
    assert_eq!(read_all(&mut process).await, b"here\n");
}

#[tokio::test]
async fn exits_are_told_by_code_and_by_signal_name() {
    assert_eq!(sh("exit 7").spawn().unwrap().wait().await, Exit::Code(7));
    let exit = sh("kill -SEGV $$").spawn().unwrap().wait().await;
    assert_eq!(exit.signal_name(), Some("SIGSEGV"));
}
