//! How each scenario is played: what the agent is asked, what happens meanwhile, and what has to be true of it.

use super::expectations::{Agent, Expected, Scenario};
use super::prompts;
use super::real::alive::kill;
use super::stage::Stage;
use serde_json::json;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use subagents::acp::Permission;
use subagents::{
    CancelCause, Deadlines, Root, StartRequest, SubagentResult, SubagentRun, SubagentService, bounded,
};
use subagents_testkit::model::FakeModel;
use tokio::time::{sleep, timeout};

/// Nothing that has to come takes that long.
const PATIENCE: Duration = Duration::from_mins(1);
/// The start of many at once, on a machine with few cores.
const START: Duration = Duration::from_mins(5);
/// An agent whose model fails is given up after so long without a sign of life, or in all.
const FAILING_IDLE: Duration = Duration::from_secs(12);
const FAILING_TOTAL: Duration = Duration::from_secs(20);
/// The same of one whose model says nothing.
const SILENT_IDLE: Duration = Duration::from_secs(3);
/// What an agent has to end its turn in after a cancel, which is part of the scenario.
const GRACE: Duration = Duration::from_secs(5);
const CROWD: usize = 20;

/// What came of a scenario.
#[derive(Debug)]
pub(crate) struct Played {
    /// What is not as it should be; none where all is.
    pub(crate) faults: Vec<String>,
    /// From the call to the made session.
    pub(crate) start: Option<Duration>,
    pub(crate) all: Duration,
}

/// One agent that plays one scenario.
pub(crate) struct Play<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) scenario: &'a Scenario,
    pub(crate) installed: &'a Path,
    pub(crate) model: &'a FakeModel,
    pub(crate) record: Option<PathBuf>,
}

/// The hall in which it is played.
struct Hall {
    stage: Stage,
    service: SubagentService,
    root: Root,
}

impl Play<'_> {
    /// Never panics over what an agent does: each fault is told.
    pub(crate) async fn play(&self) -> Played {
        let begun = Instant::now();
        let mut played = Played { faults: Vec::new(), start: None, all: Duration::ZERO };
        match self.hall() {
            Ok(hall) => {
                if let Err(fault) = self.act(&hall, &mut played).await {
                    played.faults.push(fault);
                }
                // Before the service ends: each run was disposed of, and this is what it promises.
                let alive = hall.stage.alive();
                if !alive.is_empty() {
                    played.faults.push(format!("alive after it was disposed of: {alive:?}"));
                }
                let report = hall.service.shutdown(PATIENCE).await;
                if !report.is_clean() {
                    played.faults.push(format!("the shutdown is not clean: {report:?}"));
                }
                let alive = hall.stage.alive();
                if !alive.is_empty() {
                    played.faults.push(format!("alive after the shutdown: {alive:?}"));
                }
            }
            Err(error) => played.faults.push(format!("it could not be set up: {error}")),
        }
        played.all = begun.elapsed();
        played
    }

    fn hall(&self) -> Result<Hall, String> {
        let base = self.model.url();
        let stage = Stage::set(self.agent, base).map_err(|error| error.to_string())?;
        let refuses = self.scenario.name == "refused";
        let provider = stage
            .provider(self.agent, self.installed, base, self.record.as_deref())
            .permission(if refuses { Permission::Reject } else { Permission::Allow })
            .schema_attempts(NonZeroU32::MIN.saturating_add(1));
        let mut deadlines = Deadlines::new().start(START).cancel_grace(GRACE);
        if self.scenario.name == "crowd" {
            // All of them end at the same time, too.
            deadlines = deadlines.dispose(PATIENCE);
        }
        let service = SubagentService::builder()
            .provider("peer", provider)
            .overall_limit(CROWD)
            .deadlines(deadlines)
            .build()
            .map_err(|error| error.to_string())?;
        let root = service.root(stage.work()).map_err(|error| error.to_string())?;
        Ok(Hall { stage, service, root })
    }

    async fn act(&self, hall: &Hall, played: &mut Played) -> Result<(), String> {
        if self.scenario.name == "crowd" {
            return self.crowd(hall, played).await;
        }
        let work = hall.stage.work();
        let (made, started) = (work.join("made"), work.join("started"));
        let prompt = self.prompt(&made, &started);
        let mut request = StartRequest::new(&hall.root, prompt);
        match self.scenario.name {
            "model-500" | "model-drop" | "model-cut" => {
                request = request.deadlines(Deadlines::new().idle(FAILING_IDLE).total(FAILING_TOTAL));
            }
            "model-silent" => request = request.deadlines(Deadlines::new().idle(SILENT_IDLE)),
            "schema-met" | "schema-not-met" => request = request.output_schema(prompts::schema()),
            _ => {}
        }
        let begun = Instant::now();
        let run = hall.service.start("peer", request).await.map_err(|error| format!("no start: {error}"))?;
        played.start = Some(begun.elapsed());
        let acted = self.meanwhile(hall, &run, &started).await;
        let cut = Instant::now();
        let result = timeout(PATIENCE, run.result()).await;
        let settled = cut.elapsed();
        let disposed = timeout(PATIENCE, run.dispose()).await;
        acted?;
        let result =
            result.map_err(|_| "it came to no end".to_owned())?.map_err(|error| error.to_string())?;
        disposed
            .map_err(|_| "the disposal came to no end".to_owned())?
            .map_err(|error| format!("the disposal: {error}"))?;
        self.judge(&result, &mut played.faults);
        let mut fact = |holds: bool, otherwise: String| {
            if !holds {
                played.faults.push(otherwise);
            }
        };
        match self.scenario.name {
            "refused" => fact(!made.exists(), "the refused tool has run".to_owned()),
            "allowed" => fact(made.exists(), "the allowed tool has not run".to_owned()),
            "cancel-stream" | "cancel-tool" => {
                fact(settled < GRACE.mul_f64(0.9), format!("the cancel was not answered in {settled:?}"));
            }
            "schema-met" => {
                fact(
                    result.structured == Some(json!({"answer": 42})),
                    format!("structured: {:?}", result.structured),
                );
                fact(attempts(&result) == 2, format!("{} attempts", attempts(&result)));
            }
            "schema-not-met" => {
                fact(result.structured.is_none(), format!("structured: {:?}", result.structured));
                fact(attempts(&result) == 2, format!("{} attempts", attempts(&result)));
            }
            _ => {}
        }
        Ok(())
    }

    fn prompt(&self, made: &Path, started: &Path) -> String {
        let prompts = prompts::of(self.agent);
        match self.scenario.name {
            "answer" => prompts.says("The answer is 42."),
            "refused" | "allowed" => prompts.uses(&format!("touch '{}'", made.display()), "After the tool."),
            "cancel-stream" | "killed" | "killed-first" => prompts.streams("Word after word ", 40),
            "cancel-tool" => prompts
                .uses(&format!("touch '{}' && tail -f /dev/null", started.display()), "After the tool."),
            "model-500" => prompts.fails(),
            "model-drop" => prompts.breaks_after("Half of the answer, and no end of it."),
            "model-cut" => prompts.is_cut_after("Half of the answer, and no end of it.", "The other half."),
            "model-silent" => prompts.is_silent(),
            "schema-met" => prompts.answers_in_turn(&[json!({"answer": "many"}), json!({"answer": 42})]),
            "schema-not-met" => {
                prompts.answers_in_turn(&[json!({"answer": "many"}), json!({"answer": "most"})])
            }
            _ => String::new(),
        }
    }

    /// What is done to it while it works.
    async fn meanwhile(&self, hall: &Hall, run: &SubagentRun, started: &Path) -> Result<(), String> {
        match self.scenario.name {
            "cancel-stream" => {
                said(run, "after word ").await?;
                seen(hall, "")?;
                run.cancel(CancelCause::requested("the suite"));
            }
            "cancel-tool" => {
                until("the tool runs", || started.exists()).await?;
                until("the tool's process is seen", || seen(hall, "tail -f /dev/null ").is_ok()).await?;
                run.cancel(CancelCause::requested("the suite"));
            }
            "killed" => {
                said(run, "after word ").await?;
                hall.stage.kill();
            }
            "killed-first" => {
                said(run, "after word ").await?;
                let pids: Vec<_> = hall.service.tree().nodes.iter().filter_map(|node| node.pid).collect();
                let [pid] = pids[..] else { return Err(format!("one process was expected, not {pids:?}")) };
                kill(pid);
            }
            _ => {}
        }
        Ok(())
    }

    /// All from one home, as the agents of one user are.
    async fn crowd(&self, hall: &Hall, played: &mut Played) -> Result<(), String> {
        let prompts = prompts::of(self.agent);
        // A home is set up by the first agent that runs in it: some cannot do that many at a time.
        let first =
            hall.service.delegate("peer", StartRequest::new(&hall.root, prompts.says("I am number …")));
        let first = timeout(START, first).await.map_err(|_| "the first one came to no end".to_owned())?;
        self.judge(&*first.map_err(|error| format!("the first one: {error}"))?, &mut played.faults);
        let all = (0..CROWD).map(|number| {
            let says = format!("I am number {number} of {CROWD}.");
            let delegation =
                hall.service.delegate("peer", StartRequest::new(&hall.root, prompts.says(&says)));
            async move { (says, timeout(START, delegation).await) }
        });
        for (says, ended) in futures_util::future::join_all(all).await {
            match ended {
                Ok(Ok(result)) if result.text() == says => self.judge(&result, &mut played.faults),
                Ok(Ok(result)) => {
                    played.faults.push(format!("{says:?} was answered with {}", told(&result)));
                }
                Ok(Err(error)) => played.faults.push(format!("{says:?}: {error}")),
                Err(_) => played.faults.push(format!("{says:?} came to no end")),
            }
        }
        Ok(())
    }

    fn judge(&self, result: &SubagentResult, faults: &mut Vec<String>) {
        let expected: Expected = self.agent.expected(self.scenario);
        let category = result.diagnostic.as_ref().map(|diagnostic| diagnostic.category().to_owned());
        let denied = result.details.denied_calls.len();
        if result.stop_reason.as_str() != expected.stop
            || category != expected.category
            || !expected.text_matches(&result.text())
            || denied != expected.denied as usize
            || result
                .details
                .denied_calls
                .iter()
                .any(|denied| denied.tool.is_empty() || denied.reason.is_empty())
        {
            faults.push(format!(
                "expected {} ({}) with {:?} and {} denied, and it was {}",
                expected.stop,
                expected.category.as_deref().unwrap_or("no diagnostic"),
                expected.text(),
                expected.denied,
                told(result)
            ));
        }
    }
}

fn attempts(result: &SubagentResult) -> usize {
    result.details.schema_attempts.len()
}

/// A result in one line.
fn told(result: &SubagentResult) -> String {
    let diagnostic =
        result.diagnostic.as_ref().map_or_else(String::new, |diagnostic| format!(" ({diagnostic})"));
    let denied = result.details.denied_calls.len();
    format!("{}{diagnostic} with {:?} and {denied} denied", result.stop_reason, bounded(&result.text(), 300))
}

/// That nobody is alive afterwards means something only where somebody is seen before.
fn seen(hall: &Hall, command: &str) -> Result<(), String> {
    let alive = hall.stage.alive();
    let seen = alive.iter().any(|line| line.contains(command));
    seen.then_some(()).ok_or_else(|| format!("`{command}` is not seen among what runs of it: {alive:?}"))
}

/// Waits until a run has said this.
async fn said(run: &SubagentRun, words: &str) -> Result<(), String> {
    let (mut progress, mut all) = (run.progress(), String::new());
    let wait = async {
        while !all.contains(words) {
            match progress.next().await {
                Some(update) => all += &update.text,
                None => return Err(format!("it ended before it said {words:?}, with {all:?}")),
            }
        }
        Ok(())
    };
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| Err(format!("it never said {words:?}")))
}

/// Asks until it holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("waited in vain until {what}"));
        }
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
