//! What crosses the border to a program: directory, environment, prompt; and what a cancel needs of it: nothing.

use super::support::{Host, PATIENCE, STUBBORN, within};
use std::{fs, os::unix::fs::PermissionsExt, time::Duration};
use subagents::{CancelCause, Content, Exec, StartRequest, StopReason, SubagentService};
use tokio::time::Instant;

#[tokio::test]
async fn spec_17_2_the_directory_is_the_configured_one_or_the_parents_and_never_the_hosts() {
    let temp = tempfile::tempdir().unwrap();
    let (parent, own) = (temp.path().canonicalize().unwrap(), temp.path().join("own"));
    fs::create_dir(&own).unwrap();
    let own = own.canonicalize().unwrap();
    let file = temp.path().join("file");
    fs::write(&file, "").unwrap();
    let closed = temp.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
    let pwd = |cwd: Option<&std::path::Path>| {
        let exec = Exec::new("pwd");
        cwd.map_or(exec.clone(), |cwd| exec.cwd(cwd))
    };
    let service = SubagentService::builder()
        .provider("parents", pwd(None))
        .provider("own", pwd(Some(&own)))
        .provider("absent", pwd(Some(&temp.path().join("absent"))))
        .provider("file", pwd(Some(&file)))
        .provider("closed", pwd(Some(&closed)))
        .provider("relative", pwd(Some(std::path::Path::new("own"))))
        .provider("empty", pwd(Some(std::path::Path::new(""))))
        .build()
        .unwrap();
    let root = service.root(&parent).unwrap();
    let ask = async |name: &str| within(name, service.delegate(name, StartRequest::new(&root, "x"))).await;
    assert_eq!(ask("parents").await.unwrap().text().trim(), parent.to_str().unwrap());
    assert_eq!(ask("own").await.unwrap().text().trim(), own.to_str().unwrap());
    assert_ne!(parent, std::env::current_dir().unwrap());
    let mut refused = vec!["absent", "file", "relative", "empty"];
    // The superuser enters any directory.
    if !rustix::process::geteuid().is_root() {
        refused.push("closed");
    }
    for name in refused {
        let error = ask(name).await.unwrap_err();
        assert_eq!(error.code(), "CWD_NOT_USABLE", "{name}: {error}");
    }
    assert!(service.root("own").is_err(), "a parent's directory is absolute, too");
    assert!(service.shutdown(PATIENCE).await.is_clean());
}

#[tokio::test]
async fn spec_17_3_f07_secrets_of_the_host_stay_with_it_unless_they_are_named() {
    // The environment of a test is not to be changed: a child of ours is the host, with secrets in its own.
    let program = env!("CARGO_BIN_EXE_subagents");
    let inner = r#"SUBAGENTS__LEDGER=false "$0" run x --json -- env"#;
    let mut host = Exec::new("sh").args(["-c", inner, program]);
    let secrets = [
        ("SECRET_X", "abc123"),
        ("MY_API_KEY", "abc124"),
        ("db_password", "abc125"),
        ("GitHub_Token", "abc126"),
        ("SUBAGENTS_OF_THE_HOST", "abc127"),
    ];
    for (name, value) in secrets {
        host = host.env(name, value);
    }
    let host = Host::with(host.env("PLAIN_X", "plain"));
    let result = within("an answer", host.service.delegate("sh", host.ask("x"))).await.unwrap();
    let text = result.text();
    assert!(text.contains("PLAIN_X=plain"), "{text}");
    assert!(!text.contains("abc12"), "a secret came through: {text}");
    host.end().await;

    let named = "env | grep -c abc12";
    let host = Host::with(Exec::new("sh").args(["-c", named]).env("SECRET_X", "abc123"));
    let result = within("an answer", host.service.delegate("sh", host.ask("x"))).await.unwrap();
    assert_eq!(result.text(), "1\n", "one that is set by name is there");
    let shown = format!("{:?} {:?}", host.service, host.service.tree());
    assert!(!shown.contains("abc12"), "{shown}");
    assert!(!format!("{:?}", Exec::new("x").env("SECRET_X", "abc123")).contains("abc12"));
    host.end().await;
}

#[tokio::test]
async fn spec_17_5_a_cancel_settles_without_the_programs_help() {
    let host = Host::of(STUBBORN);
    let run = host.up().await;
    let begun = Instant::now();
    run.cancel(CancelCause::requested("enough"));
    let result = within("the settlement", run.result()).await.unwrap();
    // Its ladder takes three seconds.
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!((result.stop_reason.clone(), result.text()), (StopReason::Aborted, "up\n".to_owned()));
    assert!(!host.mark.alive().is_empty(), "it is still being ended");
    within("the disposal", run.dispose()).await.unwrap();
    assert_eq!(host.mark.alive(), [""; 0]);
    host.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a12_a_large_task_arrives_whole_and_is_nowhere_in_the_arguments() {
    let script = r"tr '\0' ' ' < /proc/$$/cmdline | grep -c 'TAS[K]'; md5sum | cut -d' ' -f1";
    let host = Host::of(script);
    for size in [300 * 1024, 5 * 1024 * 1024] {
        let unit = "TASK \"quoted\" 'so'\n漢字🦀\t";
        let task = unit.repeat(size / unit.len() + 1);
        let mut reference = std::env::temp_dir();
        reference.push(format!("{}-{size}", host.mark.value()));
        fs::write(&reference, &task).unwrap();
        let sum =
            Host::with(Exec::new("sh").args(["-c", "md5sum < \"$1\" | cut -d' ' -f1", "sh"]).arg(&reference));
        let wanted = within("a sum", sum.service.delegate("sh", sum.ask("x"))).await.unwrap().text();
        sum.end().await;
        fs::remove_file(&reference).unwrap();
        let result = within("an answer", host.service.delegate("sh", host.ask(&task))).await.unwrap();
        assert_eq!(result.text(), format!("0\n{wanted}"), "{size}");
    }
    host.end().await;
    // In an argument it is refused before anything starts, with the way out.
    let host = Host::with(Exec::new("sh").args(["-c", "printf %s \"$1\" | wc -c", "sh", "{}"]));
    let answer =
        within("an answer", host.service.delegate("sh", host.ask(&"x".repeat(65_536)))).await.unwrap();
    assert_eq!(answer.text().trim(), "65536");
    let long = Content::from("x".repeat(65_537));
    let request = StartRequest::new(&host.root, long);
    let error = within("a refusal", host.service.delegate("sh", request)).await.unwrap_err();
    assert_eq!(error.code(), "PROMPT_TOO_LONG");
    assert!(error.to_string().contains("drop {} from the arguments"), "{error}");
    host.end().await;
}
