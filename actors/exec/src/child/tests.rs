//! Real programs, of `/bin/sh` and the core utilities only, with a link that only listens.

use std::any::Any;
use std::path::Path;
use std::sync::Mutex;

use subagents_seam::context::RunLink;
use subagents_seam::{AgentId, CancelCause, CancellationToken, Name, Parent, RunId, StopReason};

use super::*;
use crate::Exec;
use subagents_external::Place;

const PATIENCE: Duration = Duration::from_secs(20);

struct Listener {
    token: CancellationToken,
    text: Mutex<String>,
    name: Name,
}

impl RunLink for Listener {
    fn run_id(&self) -> RunId {
        unreachable!("not asked")
    }
    fn agent_id(&self) -> AgentId {
        unreachable!("not asked")
    }
    fn provider(&self) -> &Name {
        &self.name
    }
    fn depth(&self) -> u32 {
        1
    }
    fn lineage(&self) -> Vec<RunId> {
        unreachable!("not asked")
    }
    fn max_depth(&self) -> Option<u32> {
        None
    }
    fn token(&self) -> &CancellationToken {
        &self.token
    }
    fn cause(&self) -> Option<CancelCause> {
        None
    }
    fn progress(&self, progress: Progress<'_>) {
        if let Progress::Text(text) = progress {
            self.text.lock().unwrap().push_str(text);
            if text.contains("CANCEL ME") {
                self.token.cancel();
            }
        }
    }
    fn as_parent(self: Arc<Self>, _: Arc<Path>, _: Option<Arc<dyn Any + Send + Sync>>) -> Parent {
        unreachable!("not asked")
    }
}

fn sh(script: &str) -> Exec {
    Exec::new("/bin/sh").args(["-c", script])
}

/// Runs and closes it; gives the result, the streamed text and how it was closed.
async fn delegate(exec: &Exec, prompt: impl Into<String>) -> (SubagentResult, String, Closed) {
    let link =
        Arc::new(Listener { token: CancellationToken::new(), text: Mutex::default(), name: "exec".into() });
    let place = Place { depth: 2, max_depth: Some(5) };
    let mut child = exec.launch(prompt.into(), Path::new("/"), place, "a test").unwrap();
    let result = timeout(PATIENCE, child.run(RunContext::new(link.clone()))).await.unwrap().unwrap();
    let closed = timeout(PATIENCE, child.close(Instant::now() + PATIENCE)).await.unwrap();
    let text = link.text.lock().unwrap().clone();
    (result, text, closed)
}

#[tokio::test]
async fn the_prompt_goes_to_stdin_and_stdout_is_the_answer() {
    let prompt = "漢字🦀 ".repeat(200_000);
    let (result, streamed, closed) = delegate(&Exec::new("cat"), prompt.clone()).await;
    assert_eq!(result.stop_reason, StopReason::Completed);
    assert!(result.text() == prompt && streamed == prompt);
    assert_eq!(closed, Closed::Clean);
}

#[tokio::test]
async fn the_prompt_takes_its_place_in_the_arguments_and_stdin_is_empty() {
    let exec = Exec::new("sh").args(["-c", "cat; printf %s \"$1\"", "sh", "<{}>"]);
    assert_eq!(delegate(&exec, "$(id) `id`").await.0.text(), "<$(id) `id`>");
}

#[tokio::test]
async fn the_child_knows_its_depth() {
    let exec = sh("echo $SUBAGENTS_DEPTH $SUBAGENTS_MAX_DEPTH").env("SUBAGENTS_DEPTH", "0");
    assert_eq!(delegate(&exec, "").await.0.text(), "2 5\n");
}

#[tokio::test]
async fn a_program_that_reads_nothing_completes_all_the_same() {
    let large = "x".repeat(1 << 20);
    // It writes more than a pipe holds before it ends, and reads nothing of what is more than a pipe holds.
    let (result, ..) = delegate(&sh("head -c 300000 /dev/zero | tr '\\0' y"), large.clone()).await;
    assert_eq!((result.stop_reason, result.output.to_text().len()), (StopReason::Completed, 300_000));
    let (result, ..) = delegate(&sh("exec <&-; echo closed"), large).await;
    assert_eq!((result.stop_reason.is_success(), result.output.to_text()), (true, "closed\n".to_owned()));
}

#[tokio::test]
async fn a_failure_is_a_value_with_the_last_words() {
    let (result, ..) = delegate(&sh("echo part; echo why >&2; exit 3"), "").await;
    assert_eq!((result.stop_reason.clone(), result.text()), (StopReason::Error, "part\n".to_owned()));
    assert_eq!(
        result.diagnostic.unwrap().to_string(),
        "exit-code: /bin/sh ended with exit code 3; stderr: why"
    );
    let (result, ..) = delegate(&sh("kill -SEGV $$"), "").await;
    assert_eq!(
        result.diagnostic.unwrap().to_string(),
        "signal: /bin/sh ended with signal SIGSEGV; no stderr"
    );
}

#[tokio::test]
async fn a_stderr_flood_leaves_a_bounded_diagnostic_with_its_end() {
    let (result, ..) =
        delegate(&sh("yes some noise | head -c 2000000 >&2; printf '\\nthe end\\n' >&2; exit 1"), "").await;
    let diagnostic = result.diagnostic.unwrap();
    assert!((2000..=4096).contains(&diagnostic.text().len()) && diagnostic.text().ends_with("\nthe end"));
}

#[tokio::test]
async fn an_answer_over_the_limit_is_cut_and_the_program_runs_to_its_end() {
    let exec = sh("head -c 1000000 /dev/zero | tr '\\0' y; exit 4").max_output(1000);
    let (result, streamed, _) = delegate(&exec, "").await;
    let truncation = result.details.truncated.unwrap();
    assert_eq!((truncation.kept_bytes, truncation.total_bytes), (1000, 1_000_000));
    assert_eq!((result.output.to_text().len(), streamed.len()), (1000, 1000));
    assert!(result.diagnostic.unwrap().text().contains("exit code 4"));
}

#[tokio::test]
async fn a_cancel_gives_the_partial_answer_at_once_and_the_close_ends_the_rest() {
    let exec = sh("trap '' TERM; echo CANCEL ME; while :; do sleep 0.05; done");
    let link =
        Arc::new(Listener { token: CancellationToken::new(), text: Mutex::default(), name: "exec".into() });
    let place = Place { depth: 1, max_depth: None };
    let mut child = exec.launch("x".repeat(1 << 20), Path::new("/"), place, "").unwrap();
    let result = timeout(PATIENCE, child.run(RunContext::new(link))).await.unwrap().unwrap();
    assert_eq!((result.stop_reason.clone(), result.text()), (StopReason::Aborted, "CANCEL ME\n".to_owned()));
    let deadline = Instant::now() + Duration::from_secs(2);
    assert_eq!(child.close(deadline).await, Closed::Clean);
    assert!(Instant::now() < deadline);
}

#[tokio::test]
async fn a_descendant_that_holds_stdout_does_not_hold_the_settlement() {
    let begun = Instant::now();
    let (result, _, closed) = delegate(&sh("sleep 100 & echo done"), "").await;
    assert_eq!((result.stop_reason.is_success(), result.text()), (true, "done\n".to_owned()));
    assert_eq!(closed, Closed::Clean);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_program_that_closes_stdout_early_is_waited_for() {
    let (result, ..) = delegate(&sh("echo early; exec >&- 2>&-; sleep 0.1; exit 6"), "").await;
    assert!(result.diagnostic.unwrap().text().contains("exit code 6"));
    assert_eq!(result.output.to_text(), "early\n");
}

#[tokio::test]
async fn f07_a_secret_that_the_program_tells_is_masked_wherever_it_tells_it() {
    let script = "printf 'the key is hunter2'; sleep 0.1; printf 'secret\\n'; echo \"called with $API_KEY\" >&2; exit 3";
    let exec = sh(script).env("API_KEY", "hunter2secret").env("PLAIN", "called");
    let (result, streamed, _) = delegate(&exec, "").await;
    assert_eq!(
        (result.text(), streamed),
        ("the key is [API_KEY]\n".to_owned(), "the key is [API_KEY]\n".to_owned())
    );
    let diagnostic = result.diagnostic.unwrap();
    assert_eq!(diagnostic.text(), "/bin/sh ended with exit code 3; stderr: called with [API_KEY]");
}

#[tokio::test]
async fn a_program_that_has_something_to_say_while_it_ends_can_say_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("saved");
    let script =
        "trap 'echo saving; echo saved > \"$0\"; exit 0' TERM; echo CANCEL ME; while :; do sleep 0.05; done";
    let exec = Exec::new("/bin/sh").args(["-c", script]).arg(&file);
    let (result, _, closed) = delegate(&exec, "").await;
    assert_eq!((result.stop_reason, closed), (StopReason::Aborted, Closed::Clean));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "saved\n");
}
