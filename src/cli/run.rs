//! `subagents run`: prompts in, outcomes out, and an end on which nothing is left alive.

use crate::cli::{
    EXIT_CLOSED, EXIT_FAILED,
    display::Display,
    ledger, limits,
    output::{Aside, Lines, Style},
    plan::{Plan, UsageError},
    prompts::{Input, Source},
    signals::{Caught, Signals},
    tally::Tally,
    writer::Writer,
};
use std::{
    collections::{HashMap, VecDeque},
    io::{self, IsTerminal},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use subagents::{
    Batch, BatchItem, CancelCause, DelegateError, NodeKind, Root, ShutdownReport, SubagentService, Tree,
    inspect::Inspector,
    process::{Host, Ledger},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

/// How long the last of the service may take when everything is disposed already.
const GRACE: Duration = Duration::from_secs(10);
/// How long a kill waits before it kills.
const NO_GRACE: Duration = Duration::from_millis(20);
/// How long after a kill outcomes are still gathered.
const AFTERMATH: Duration = Duration::from_secs(2);
/// How long after that somebody may still read.
const LAST_WORDS: Duration = Duration::from_millis(500);

const EXIT_INPUT: u8 = 2;

/// Carries the plan out; gives the exit code.
///
/// # Errors
/// What can be known before anything starts.
pub(crate) fn run(plan: Plan) -> Result<u8, UsageError> {
    limits::make_room(plan.limit.map_or(plan.jobs, |limit| limit.min(plan.jobs)), 0);
    let failed = |error: io::Error| UsageError(format!("the program cannot be set up: {error}"));
    limits::room_for_threads().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(failed)?;
    let code = runtime.block_on(async {
        match Session::begin(plan, failed).await? {
            Begun::Session(session) => session.drive().await,
            Begun::Ended(code) => Ok(code),
        }
    });
    // Everything was waited for; what could still block is a read that nobody waits for.
    runtime.shutdown_timeout(Duration::from_millis(100));
    code
}

/// One thing that happened.
enum Turn {
    Signal(Caught),
    OutputBroken,
    Look,
    Written,
    Input(Option<Input>),
    Item(Option<BatchItem>),
}

/// Prompts that were read and are not started: where the batch takes them from.
#[derive(Clone, Debug, Default)]
struct Queue(Arc<Mutex<VecDeque<String>>>);

impl Queue {
    fn with<T>(&self, look: impl FnOnce(&mut VecDeque<String>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// How it begins: or ends, by a signal, before it has begun.
enum Begun {
    Session(Box<Session>),
    Ended(u8),
}

struct Session {
    service: SubagentService,
    root: Root,
    batch: Batch,
    queue: Queue,
    jobs: usize,
    source: String,
    input: Option<mpsc::Receiver<Input>>,
    style: Style,
    writer: Writer,
    /// How many prompts were read, and the lines of those that are not done, by index.
    read: usize,
    lines: HashMap<usize, u64>,
    /// Not everything was read when it was stopped.
    unread: bool,
    /// What the writer has no room for yet.
    waiting: Option<Lines>,
    signals: Signals,
    display: Display,
    /// What other programs see it by.
    _seen: Option<Inspector>,
    /// What all child processes share.
    host: Host,
    ledger: Option<Ledger>,
    tally: Tally,
    /// The first signal: everything is cancelled.
    caught: Option<Caught>,
    output_broken: bool,
    input_failed: bool,
    begun: Instant,
}

impl Session {
    async fn begin(plan: Plan, failed: impl Fn(io::Error) -> UsageError) -> Result<Begun, UsageError> {
        let mut signals = Signals::install().map_err(&failed)?;
        let display = Display::new(plan.show, plan.watched);
        let host = Host::current().map_err(&failed)?;
        // The program itself, also when its file has been replaced or removed.
        host.set_guardian("/proc/self/exe", [crate::cli::GUARDIAN]);
        let tell = |line: &str| display.note(line);
        let ledger = tokio::select! {
            ledger = ledger::open(&plan.ledger, |name| std::env::var_os(name), plan.watched, tell) => ledger?,
            caught = signals.next() => return Ok(Begun::Ended(caught.exit_code())),
        };
        // Gone runs would only hold their answers in memory: nobody looks at them here.
        let mut service = SubagentService::builder()
            .provider(&*plan.name, plan.provider)
            .root_depth(plan.depth)
            .keep_gone(0, Duration::ZERO)
            // What is over a provider's limit waits, however much it is.
            .queue(plan.jobs);
        if let Some(limit) = plan.limit {
            service = service.limit(&*plan.name, limit);
        }
        if let Some(depth) = plan.max_depth {
            service = service.max_depth(depth);
        }
        let service = service.build().map_err(|error| UsageError(error.to_string()))?;
        let root = service.root(&plan.cwd).map_err(|error| UsageError(error.to_string()))?;

        let seen = crate::cli::seen(&service, "subagents run", |line| {
            if plan.watched {
                display.note(line);
            }
        });
        let queue = Queue::default();
        let prompts = queue.clone();
        let deadlines = plan.limits.deadlines.clone();
        let mut batch = service.batch(&root, &*plan.name).limit(plan.jobs).deadlines(deadlines);
        let many = !matches!(plan.source, Source::One(_));
        if let Some(label) = &plan.label {
            batch = batch.label(label.clone());
        } else if many {
            // With its index, which tells the rows of the tree apart.
            batch = batch.label("prompt");
        }
        let asked = plan.asked;
        let batch = batch.each(move |request| asked.of(request));
        let batch = batch.requests(std::iter::from_fn(move || prompts.with(VecDeque::pop_front)));

        if let Some(note) = &plan.note {
            display.note(note);
        }
        if !many {
            let _ = display.expected().set(1);
        } else if let Some(count) = plan.source.counter() {
            let expected = display.expected();
            let count = move || count().map(|total| expected.set(total));
            std::thread::Builder::new().name("count".to_owned()).spawn(count).map_err(&failed)?;
        }
        let terminal = io::stdout().is_terminal();
        Ok(Begun::Session(Box::new(Self {
            service,
            root,
            batch,
            queue,
            jobs: plan.jobs,
            source: plan.source.name(),
            input: Some(plan.source.start().map_err(&failed)?),
            style: Style {
                json: plan.json,
                terminal,
                many,
                label: plan.label,
                provider: plan.name,
                limits: plan.limits,
                able: plan.able,
            },
            writer: Writer::start(display.bar()).map_err(&failed)?,
            read: 0,
            lines: HashMap::new(),
            unread: false,
            waiting: None,
            signals,
            display,
            _seen: seen,
            host,
            ledger,
            tally: Tally::default(),
            caught: None,
            output_broken: false,
            input_failed: false,
            begun: Instant::now(),
        })))
    }

    async fn drive(mut self) -> Result<u8, UsageError> {
        while !self.is_done() {
            match self.turn().await {
                Turn::Signal(again) if self.caught.is_some() => return Ok(self.kill(again).await),
                Turn::Signal(caught) => {
                    self.caught = Some(caught);
                    self.display.note(&format!(
                        "subagents: {}: cancelling {} under way; once more kills",
                        caught.as_str(),
                        self.batch.under_way()
                    ));
                    self.stop(caught.as_str());
                }
                Turn::OutputBroken => {
                    self.output_broken = true;
                    self.waiting = None;
                    self.stop("the output is closed");
                }
                Turn::Look => {
                    let tree = tree(&self.service, &self.style);
                    self.display.update(&self.tally, self.batch.under_way(), &self.service, &tree);
                }
                Turn::Written | Turn::Item(None) => {}
                Turn::Input(input) => self.take(input),
                Turn::Item(Some(item)) => {
                    self.tally.add(&item);
                    let aside = Aside { line: self.lines.remove(&item.index), killed: false };
                    if !self.output_broken {
                        self.waiting = Some(self.style.render(&item, aside));
                    }
                }
            }
        }
        Ok(self.finish().await)
    }

    fn is_busy(&self) -> bool {
        self.batch.under_way() > 0 || self.queue.with(|queue| !queue.is_empty())
    }

    fn is_done(&self) -> bool {
        self.waiting.is_none() && self.input.is_none() && !self.is_busy()
    }

    /// Waits for the next thing to happen. Signals come first; prompts before outcomes, so that no place stays empty.
    async fn turn(&mut self) -> Turn {
        let busy = self.is_busy();
        let broken = self.output_broken;
        let ahead = self.batch.under_way() + self.queue.with(|queue| queue.len());
        let writing = self.waiting.is_some();
        let reading = self.input.is_some() && ahead < self.jobs;
        let Self { batch, signals, input, writer, waiting, display, .. } = self;
        tokio::select! {
            biased;
            caught = signals.next() => Turn::Signal(caught),
            () = writer.broken(), if !broken => Turn::OutputBroken,
            () = display.due() => Turn::Look,
            () = writer.accept(waiting), if writing => Turn::Written,
            read = receive(input), if reading => Turn::Input(read),
            item = batch.next(), if busy && !writing => Turn::Item(item),
        }
    }

    fn take(&mut self, input: Option<Input>) {
        match input {
            Some(Input::Prompt { text, line }) => {
                self.lines.extend(line.map(|line| (self.read, line)));
                self.read += 1;
                self.queue.with(|queue| queue.push_back(text));
                if !self.style.many {
                    self.input = None;
                }
            }
            Some(Input::End { blank }) => {
                self.input = None;
                if blank > 0 {
                    let lines = if blank == 1 { "line was" } else { "lines were" };
                    self.display.note(&format!("subagents: {}: {blank} blank {lines} skipped", self.source));
                }
            }
            Some(Input::Failed(why)) => {
                self.input = None;
                self.display.note(&format!("subagents: {why}; nothing more is started"));
                self.input_failed = true;
            }
            None => self.input = None,
        }
    }

    /// Cancels everything; the outcomes are still to come.
    fn stop(&mut self, reason: &str) {
        let cause = CancelCause::requested(reason);
        // The root tells the runs at once, also while nobody looks at the batch.
        self.root.cancel(cause.clone());
        self.batch.cancel(cause);
        self.unread = self.style.many && self.input.take().is_some();
    }

    /// Everything has settled and is disposed.
    async fn finish(mut self) -> u8 {
        self.display.finish(&self.tally, &self.service, &tree(&self.service, &self.style));
        let report = tokio::select! {
            report = self.service.shutdown(GRACE) => report,
            caught = self.signals.next() => return self.kill(caught).await,
        };
        let end = self.summary();
        let written = tokio::select! {
            written = self.writer.finish() => written,
            // Whoever reads does not; there is nothing left to cancel.
            caught = self.signals.next() => return caught.exit_code(),
        };
        tell_leaks(&self.display, &report);
        ledger::close(self.ledger.take(), |line| self.display.note(line));
        let closed = written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        if let (Err(error), false) = (&written, closed) {
            self.display.note(&format!("subagents: stdout cannot be written: {error}"));
        }
        if closed {
            return self.caught.map_or(EXIT_CLOSED, Caught::exit_code);
        }
        if let Some(line) = &end {
            self.display.note(line);
        }
        let failed = written.is_err() || self.tally.unsuccessful() > 0 || !report.is_clean();
        match self.caught {
            Some(caught) => caught.exit_code(),
            None if self.input_failed => EXIT_INPUT,
            None => u8::from(failed) * EXIT_FAILED,
        }
    }

    /// Does not wait any longer: kills what is left.
    async fn kill(mut self, caught: Caught) -> u8 {
        self.display.note(&format!("subagents: {} again: killing what is left", caught.as_str()));
        let batch = &mut self.batch;
        let mut items = Vec::new();
        let outcomes = async {
            while let Some(item) = batch.next().await {
                items.push(item);
            }
        };
        let (report, _) = tokio::join!(self.service.shutdown(NO_GRACE), timeout(AFTERMATH, outcomes));
        // What had no time to see its child go says that it may have left something; here is seen that it has not.
        let gone = timeout(AFTERMATH, self.host.idle()).await.is_ok_and(|all| all);
        let (lines, tally, style, writer) = (&mut self.lines, &mut self.tally, &self.style, &self.writer);
        let mut waiting = self.waiting.take();
        let rendered: Vec<_> = items
            .into_iter()
            .map(|mut item| {
                let mut aside = Aside { line: lines.remove(&item.index), killed: false };
                if gone && let Err(DelegateError::Dispose { result, .. }) = &item.outcome {
                    item.outcome = Ok(result.clone());
                    aside.killed = true;
                }
                tally.add(&item);
                style.render(&item, aside)
            })
            .collect();
        let hand_over = async {
            writer.accept(&mut waiting).await;
            for lines in rendered {
                writer.accept(&mut Some(lines)).await;
            }
        };
        // Who does not read by now will not.
        let _ = timeout(LAST_WORDS, hand_over).await;
        self.display.finish(&self.tally, &self.service, &tree(&self.service, &self.style));
        if !gone {
            tell_leaks(&self.display, &report);
        }
        let (end, writer) = (self.summary(), self.writer);
        let _ = timeout(LAST_WORDS, writer.finish()).await;
        if let Some(line) = &end {
            self.display.note(line);
        }
        caught.exit_code()
    }

    /// The last line, where there is something to say.
    fn summary(&self) -> Option<String> {
        let (total, source) = (self.tally.total(), &self.source);
        if self.unread {
            let left = match self.display.expected().get().and_then(|all| all.checked_sub(total)) {
                Some(left) => format!("{left} of {source} were never started"),
                None => format!("{source} was not read to its end"),
            };
            return Some(format!("{}; {left}", self.tally.summary(self.begun.elapsed())));
        }
        if total > 1 && (self.display.is_watched() || self.tally.unsuccessful() > 0) {
            return Some(self.tally.summary(self.begun.elapsed()));
        }
        (self.style.many && total == 0)
            .then(|| format!("subagents: {source}: there was no prompt to delegate"))
    }
}

/// The tree to show. The batch adds an index to every label, which says nothing where there is but one prompt.
fn tree(service: &SubagentService, style: &Style) -> Tree {
    let mut tree = service.tree();
    if let (false, Some(label)) = (style.many, &style.label) {
        for node in tree.nodes.iter_mut().filter(|node| node.kind == NodeKind::Run) {
            node.label = Some(label.clone().into());
        }
    }
    tree
}

async fn receive(input: &mut Option<mpsc::Receiver<Input>>) -> Option<Input> {
    match input {
        Some(input) => input.recv().await,
        None => None,
    }
}

fn tell_leaks(display: &Display, report: &ShutdownReport) {
    for (run, what) in &report.leaked {
        let what = subagents::sanitised(what).replace('\n', " ");
        display.note(&format!("subagents: run {run} may have left something behind: {what}"));
    }
}
