//! A running program: its conversation, its settlement, its end.

use std::sync::Arc;
use std::time::Duration;

use subagents_external::{closed, end};
use subagents_process::{Exit, Process, Stdin, Stdout};
use subagents_seam::{Child, Closed, Instant, Progress, ResultError, RunContext, SubagentResult};
use tokio::time::timeout;

use crate::answer::{Answer, LastWords};

/// How long after the program's exit its pipes are still read, should a descendant keep them open.
const DRAIN: Duration = Duration::from_millis(500);

/// What comes on stdout and on stderr within this time comes together: which was written first cannot be told.
const TOGETHER: Duration = Duration::from_millis(250);

/// A program that was started for one delegation. Dropping it kills its process group.
#[derive(Debug)]
pub struct ExecChild {
    process: Process,
    program: Arc<str>,
    /// Empty when the prompt went into the arguments.
    prompt: Prompt,
    /// Taken by the run.
    answer: Option<Answer>,
    /// Lent to the run, and given back for the teardown: a program that still has something to say must not find its
    /// pipe closed.
    stdout: Option<Stdout>,
}

/// Never shown.
struct Prompt(String);

impl std::fmt::Debug for Prompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl ExecChild {
    pub(crate) fn new(mut process: Process, program: Arc<str>, prompt: String, answer: Answer) -> Self {
        let stdout = process.take_stdout();
        Self { process, program, prompt: Prompt(prompt), answer: Some(answer), stdout }
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
        let (Some(stdout), Some(mut answer)) = (&mut self.stdout, self.answer.take()) else {
            return Err(ResultError::wait_failed("the program was run twice"));
        };
        let stdin = self.process.take_stdin();
        let prompt = std::mem::take(&mut self.prompt.0);
        let mut last_output = None;
        // A cancel settles here and now; the program is `close`'s to end (`SPEC 17.5`).
        let end = tokio::select! {
            biased;
            () = cx.cancelled() => None,
            end = converse(&self.process, stdin, prompt, stdout, (&mut answer, &mut last_output), &cx) => Some(end),
        };
        match end {
            None => Ok(answer.aborted()),
            Some(End::TooMuch) => Ok(answer.too_much(&self.program)),
            Some(End::Exit(exit)) => {
                let words =
                    if exit.success() { LastWords::default() } else { self.last_words(last_output).await };
                Ok(answer.ended(&self.program, exit, &words))
            }
        }
    }

    async fn close(mut self, deadline: Instant) -> Closed {
        let stdout = self.stdout.take();
        closed(&self.program, end(&mut self.process, stdout, deadline).await)
    }
}

impl ExecChild {
    async fn last_words(&self, last_output: Option<Instant>) -> LastWords {
        let stderr = self.process.stderr();
        // They are on their way, unless a descendant holds the pipe.
        let _ = timeout(DRAIN, stderr.finished()).await;
        let all = stderr.text();
        let since = last_output.and_then(|at| at.checked_sub(TOGETHER));
        let late = since.map_or_else(|| all.clone(), |since| stderr.text_since(since));
        LastWords { all, late }
    }
}

/// How a conversation ends.
enum End {
    Exit(Exit),
    TooMuch,
}

/// Writes the prompt and reads the answer, both at once: a program may answer before it has read everything, or
/// read nothing at all. Ends with the program's exit.
async fn converse(
    process: &Process,
    stdin: Option<Stdin>,
    prompt: String,
    stdout: &mut Stdout,
    into: (&mut Answer, &mut Option<Instant>),
    cx: &RunContext,
) -> End {
    let mut writing = std::pin::pin!(write(stdin, prompt));
    let mut reading = std::pin::pin!(read(stdout, into, cx));
    let (mut written, mut all_read) = (false, false);
    let exit = loop {
        tokio::select! {
            () = &mut writing, if !written => written = true,
            ended = &mut reading, if !all_read => match ended {
                Read::All => all_read = true,
                Read::TooMuch => return End::TooMuch,
            },
            exit = process.wait() => break exit,
        }
    };
    if !all_read && matches!(timeout(DRAIN, reading).await, Ok(Read::TooMuch)) {
        return End::TooMuch;
    }
    End::Exit(exit)
}

async fn write(stdin: Option<Stdin>, prompt: String) {
    if let Some(mut stdin) = stdin {
        // A program that does not want all of it is not wrong: its exit tells.
        let _ = stdin.write_all(prompt.as_bytes()).await;
    }
}

/// How the reading ends.
enum Read {
    All,
    TooMuch,
}

async fn read(
    stdout: &mut Stdout,
    (answer, last_output): (&mut Answer, &mut Option<Instant>),
    cx: &RunContext,
) -> Read {
    // A pipe that cannot be read any more has ended.
    while let Ok(Some(portion)) = stdout.read_chunk().await {
        *last_output = Some(Instant::now());
        match answer.push(portion) {
            "" => cx.progress(Progress::Alive),
            text => cx.progress(Progress::Text(text)),
        }
        if answer.is_over() {
            return Read::TooMuch;
        }
    }
    Read::All
}

#[cfg(test)]
mod tests;
