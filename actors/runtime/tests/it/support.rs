//! A child that does what its prompt says, and the little that every test needs.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use subagents_runtime::{Root, ServiceBuilder, SubagentService, WeakService};
use subagents_seam::{
    Capabilities, Child, Closed, Diagnostic, FailureCode, Instant, Progress, ProviderFailure, ResultError,
    RunContext, StartContext, StartError, StartRequest, StopReason, SubagentProvider, SubagentResult,
    Waiting,
};

/// Counts what a provider was asked and what of its children is left.
#[derive(Clone, Default)]
pub(crate) struct Probe(Arc<Counts>);

#[derive(Default)]
struct Counts {
    starts: AtomicUsize,
    runs: AtomicUsize,
    closes: AtomicUsize,
    alive: AtomicUsize,
    prompts: Mutex<Vec<String>>,
    service: Mutex<Option<WeakService>>,
}

impl Probe {
    pub(crate) fn starts(&self) -> usize {
        self.0.starts.load(SeqCst)
    }
    pub(crate) fn runs(&self) -> usize {
        self.0.runs.load(SeqCst)
    }
    pub(crate) fn closes(&self) -> usize {
        self.0.closes.load(SeqCst)
    }
    /// Children and their futures that were not dropped.
    pub(crate) fn alive(&self) -> usize {
        self.0.alive.load(SeqCst)
    }
    pub(crate) fn prompts(&self) -> Vec<String> {
        self.0.prompts.lock().unwrap().clone()
    }
    /// Gives children a service to delegate with.
    pub(crate) fn lend(&self, service: &SubagentService) {
        *self.0.service.lock().unwrap() = Some(service.downgrade());
    }
    fn service(&self) -> SubagentService {
        self.0.service.lock().unwrap().as_ref().expect("a service was lent").upgrade().expect("it lives")
    }
    fn live(&self) -> Alive {
        self.0.alive.fetch_add(1, SeqCst);
        Alive(self.clone())
    }
}

struct Alive(Probe);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.0.alive.fetch_sub(1, SeqCst);
    }
}

/// A provider whose child does what the prompt says: words separated by spaces, done in order.
///
/// In start: `start-err`, `start-panic`, `start-hang` (ends on cancel), `start-deaf`, `start-slow` (50 ms).
/// In run: `say:TEXT` (progress), `sleep:MS`, `hang`, `deaf`, `late:MS` (that long after the cancel), `fail`, `panic`,
/// `err`, `blank`, `reason:R`, `flood:N`, `tool:NAME`, `ask:ID`, `nest:K:PROMPT`, `via:PROVIDER`, `fan:K`. In close: `close-hang`, `close-panic`,
/// `close-leak`, `close-slow` (50 ms). Anything else is the answer.
pub(crate) struct Obedient {
    pub(crate) probe: Probe,
    pub(crate) capabilities: Capabilities,
    pub(crate) blank: bool,
}

impl Obedient {
    pub(crate) fn new(probe: &Probe) -> Self {
        Self { probe: probe.clone(), capabilities: Capabilities::NONE, blank: false }
    }
}

pub(crate) struct ObedientChild {
    probe: Probe,
    script: String,
    start: StartContext,
    _alive: Alive,
}

impl SubagentProvider for Obedient {
    type Child = ObedientChild;

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn allows_blank_answer(&self) -> bool {
        self.blank
    }

    async fn start(&self, cx: StartContext) -> Result<ObedientChild, StartError> {
        let alive = self.probe.live();
        self.probe.0.starts.fetch_add(1, SeqCst);
        let script = cx.prompt().to_text();
        self.probe.0.prompts.lock().unwrap().push(script.clone());
        for word in script.split(' ') {
            match word {
                "start-err" => {
                    let failure =
                        ProviderFailure::new(FailureCode::ProviderFailed, "no such agent; install it");
                    return Err(failure.with_source(std::io::Error::other("underneath")).into());
                }
                "start-panic" => panic!("the start panics"),
                "start-hang" => {
                    cx.cancelled().await;
                    return Err(ProviderFailure::new(FailureCode::ProviderFailed, "cancelled").into());
                }
                "start-deaf" => std::future::pending().await,
                "start-slow" => tokio::time::sleep(Duration::from_millis(50)).await,
                "start-late" => tokio::time::sleep(Duration::from_secs(1)).await,
                _ => {}
            }
        }
        Ok(ObedientChild { probe: self.probe.clone(), script, start: cx, _alive: alive })
    }
}

impl Child for ObedientChild {
    async fn run(&mut self, cx: RunContext) -> Result<SubagentResult, ResultError> {
        let _alive = self.probe.live();
        self.probe.0.runs.fetch_add(1, SeqCst);
        let mut answer = String::new();
        for word in self.script.split(' ') {
            let (word, argument) = word.split_once(':').unwrap_or((word, ""));
            let number = || argument.parse::<u64>().expect("a number");
            match word {
                "say" => cx.progress(Progress::Text(argument)),
                "alive" => cx.progress(Progress::Alive),
                "sleep" => tokio::time::sleep(Duration::from_millis(number())).await,
                "hang" => {
                    cx.cancelled().await;
                    return Ok(SubagentResult::aborted(format!("partial {answer}")));
                }
                "stubborn" => {
                    cx.cancelled().await;
                    return Ok(SubagentResult::completed("I was done anyway"));
                }
                "deaf" => std::future::pending().await,
                "late" => {
                    cx.cancelled().await;
                    tokio::time::sleep(Duration::from_millis(number())).await;
                    return Ok(SubagentResult::aborted("late"));
                }
                "fail" => {
                    return Ok(SubagentResult::error(Diagnostic::new(
                        "model",
                        "429 from the model: slow down",
                    )));
                }
                "panic" => panic!("the run panics"),
                "err" => return Err(ResultError::wait_failed("the link broke")),
                "value" => {
                    return Ok(SubagentResult::completed(answer).with_structured(serde_json::json!({})));
                }
                "blank" => return Ok(SubagentResult::completed("  \n")),
                "reason" => return Ok(SubagentResult::new(StopReason::from(argument), "so far")),
                "flood" => {
                    for _ in 0..number() {
                        cx.progress(Progress::Text("0123456789"));
                    }
                }
                "tool" => cx.progress(Progress::ToolStarted(argument)),
                "plan" => cx.progress(Progress::Plan),
                "deny" => cx.progress(Progress::Denied { tool: argument, reason: "the policy says no" }),
                "ask" => cx.progress(Progress::Waiting(Some(Waiting::Permission(argument.into())))),
                "block" => std::thread::sleep(Duration::from_millis(number())),
                "process" => cx.progress(Progress::Process { pid: 4242, program: argument }),
                "nest" => {
                    let (times, prompt) = argument.split_once(':').expect("nest:K:PROMPT");
                    let prompt = prompt.replace('+', " ").replace('/', "+").replace('%', "/");
                    let (service, parent) = (self.probe.service(), self.start.as_parent());
                    let times = times.parse().expect("a number");
                    let calls =
                        (0..times).map(|_| service.delegate("it", StartRequest::new(&parent, &*prompt)));
                    for outcome in futures_util::future::join_all(calls).await {
                        answer += &match outcome {
                            Ok(result) => format!("[{}]", result.text()),
                            Err(error) => format!("[{}]", error.code()),
                        };
                    }
                }
                "via" => {
                    let (service, parent) = (self.probe.service(), self.start.as_parent());
                    let below = service.delegate(argument, StartRequest::new(&parent, "x")).await;
                    answer += &below.map_or_else(|error| error.code().to_owned(), |result| result.text());
                }
                // Delegates the same to five below, for as long as it may.
                "fan" => {
                    let (service, parent) = (self.probe.service(), self.start.as_parent());
                    let calls = (0..number())
                        .map(|_| service.delegate("it", StartRequest::new(&parent, &*self.script)));
                    for outcome in futures_util::future::join_all(calls).await {
                        answer += outcome.as_ref().err().map_or("", |error| error.code());
                    }
                    answer += ".";
                }
                word if word.starts_with("start-") || word.starts_with("close-") => {}
                word => answer += word,
            }
        }
        if answer.is_empty() {
            answer.push_str("done");
        }
        Ok(SubagentResult::completed(answer))
    }

    async fn close(self, _deadline: Instant) -> Closed {
        self.probe.0.closes.fetch_add(1, SeqCst);
        for word in self.script.split(' ') {
            match word {
                "close-hang" => std::future::pending().await,
                "close-panic" => panic!("the close panics"),
                "close-leak" => return Closed::Leaked("a socket".into()),
                "close-slow" => tokio::time::sleep(Duration::from_millis(50)).await,
                _ => {}
            }
        }
        Closed::Clean
    }
}

/// A service with the provider `it`, and its root.
pub(crate) fn service(probe: &Probe) -> (SubagentService, Root) {
    service_with(probe, |builder| builder)
}

pub(crate) fn service_with(
    probe: &Probe,
    settle: impl FnOnce(ServiceBuilder) -> ServiceBuilder,
) -> (SubagentService, Root) {
    let service =
        settle(SubagentService::builder().provider("it", Obedient::new(probe))).build().expect("it builds");
    probe.lend(&service);
    let root = service.root("/").expect("a root");
    (service, root)
}

/// Waits until something holds; fails after ten seconds of the test's clock.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "still not: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until nothing of any run is left.
pub(crate) async fn quiet(service: &SubagentService, probe: &Probe) {
    until("nothing is left", || {
        probe.alive() == 0 && service.tree().nodes.iter().all(|node| node.provider.is_none())
    })
    .await;
}
