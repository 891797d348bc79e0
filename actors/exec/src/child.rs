//! A running program: its conversation, its settlement, its end.

use std::sync::Arc;
use std::time::Duration;

use subagents_process::{Exit, Ladder, Process, Stdin, Stdout, Teardown};
use subagents_seam::{Child, Closed, Instant, Progress, ResultError, RunContext, SubagentResult};
use tokio::time::timeout;

use crate::answer::Answer;

/// How long after the program's exit its pipes are still read, should a descendant keep them open.
const DRAIN: Duration = Duration::from_millis(500);

/// A program that was started for one delegation. Dropping it kills its process group.
#[derive(Debug)]
pub struct ExecChild {
    process: Process,
    program: Arc<str>,
    /// Empty when the prompt went into the arguments.
    prompt: Prompt,
    max_output: usize,
}

/// Never shown.
struct Prompt(String);

impl std::fmt::Debug for Prompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl ExecChild {
    pub(crate) fn new(process: Process, program: Arc<str>, prompt: String, max_output: usize) -> Self {
        Self { process, program, prompt: Prompt(prompt), max_output }
    }

    /// The program's process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The program, as it was named, without its arguments.
    pub fn program(&self) -> &str {
        &self.program
    }
}

impl Child for ExecChild {
    async fn run(&mut self, cx: RunContext) -> Result<SubagentResult, ResultError> {
        let Some(stdout) = self.process.take_stdout() else {
            return Err(ResultError::wait_failed("the program was run twice"));
        };
        let stdin = self.process.take_stdin();
        let mut answer = Answer::new(self.max_output);
        let prompt = std::mem::take(&mut self.prompt.0);
        // A cancel settles here and now; the program is `close`'s to end (`SPEC 17.5`).
        let exit = tokio::select! {
            biased;
            () = cx.cancelled() => None,
            exit = converse(&self.process, stdin, prompt, stdout, &mut answer, &cx) => Some(exit),
        };
        let Some(exit) = exit else { return Ok(answer.aborted()) };
        let stderr = self.process.stderr();
        if !exit.success() {
            // Its last words are on their way, unless a descendant holds the pipe.
            let _ = timeout(DRAIN, stderr.finished()).await;
        }
        Ok(answer.ended(&self.program, exit, &stderr.text()))
    }

    async fn close(mut self, deadline: Instant) -> Closed {
        // A little less than there is, so that a leak can still be told.
        let left = deadline.saturating_duration_since(Instant::now()).mul_f64(0.95);
        match self.process.terminate(Ladder::within(left)).await {
            Teardown::Gone { .. } => Closed::Clean,
            Teardown::Leaked { pid, members, .. } => Closed::Leaked(
                format!("process group {pid} of {} is not gone; alive: {members:?}", self.program).into(),
            ),
            other => Closed::Leaked(format!("{}: {other:?}", self.program).into()),
        }
    }
}

/// Writes the prompt and reads the answer, both at once: a program may answer before it has read everything, or
/// read nothing at all. Ends with the program's exit.
async fn converse(
    process: &Process,
    stdin: Option<Stdin>,
    prompt: String,
    stdout: Stdout,
    answer: &mut Answer,
    cx: &RunContext,
) -> Exit {
    let mut writing = std::pin::pin!(write(stdin, prompt));
    let mut reading = std::pin::pin!(read(stdout, answer, cx));
    let (mut written, mut all_read) = (false, false);
    let exit = loop {
        tokio::select! {
            () = &mut writing, if !written => written = true,
            () = &mut reading, if !all_read => all_read = true,
            exit = process.wait() => break exit,
        }
    };
    if !all_read {
        let _ = timeout(DRAIN, reading).await;
    }
    exit
}

async fn write(stdin: Option<Stdin>, prompt: String) {
    if let Some(mut stdin) = stdin {
        // A program that does not want all of it is not wrong: its exit tells.
        let _ = stdin.write_all(prompt.as_bytes()).await;
    }
}

async fn read(mut stdout: Stdout, answer: &mut Answer, cx: &RunContext) {
    // A pipe that cannot be read any more has ended.
    while let Ok(Some(portion)) = stdout.read_chunk().await {
        match answer.push(portion) {
            "" => cx.progress(Progress::Alive),
            text => cx.progress(Progress::Text(text)),
        }
    }
}

#[cfg(test)]
mod tests;
