//! Many delegations to one provider: some at a time, under one deadline, until a condition stops them.

use crate::{handle::Starting, service::SubagentService};
use futures_util::{StreamExt, stream::FuturesUnordered};
use std::{
    fmt,
    future::Future,
    num::NonZeroUsize,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};
use subagents_seam::{
    CancelCause, Content, DeadlineKind, Deadlines, DelegateError, Instant, Name, Parent, RunId, StartError,
    StartRequest, SubagentResult,
};
use tokio::{sync::watch, time::Sleep};

/// What stops a batch early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopOn {
    /// Nothing: every item gets its outcome.
    #[default]
    Never,
    /// The first success; the rest is cancelled.
    FirstSuccess,
    /// The first failure of an item; the rest is cancelled. What an item's own children do is the item's affair.
    FirstFailure,
}

/// Settings of a batch.
#[must_use = "a batch does nothing until it has requests"]
pub struct BatchBuilder {
    service: SubagentService,
    parent: Parent,
    provider: String,
    limit: NonZeroUsize,
    deadline: Option<Duration>,
    stop_on: StopOn,
    label: Option<Name>,
    deadlines: Deadlines,
    each: Option<Box<Each>>,
}

/// What is made of the request of each item.
type Each = dyn Fn(StartRequest) -> StartRequest + Send;

impl BatchBuilder {
    pub(crate) fn new(service: SubagentService, parent: Parent, provider: String) -> Self {
        Self {
            service,
            parent,
            provider,
            limit: NonZeroUsize::new(64).unwrap_or(NonZeroUsize::MIN),
            deadline: None,
            stop_on: StopOn::Never,
            label: None,
            deadlines: Deadlines::default(),
            each: None,
        }
    }

    /// How many are under way at once; 64 by default, at least 1. The limits of the service hold as well.
    pub fn limit(mut self, at_once: usize) -> Self {
        self.limit = NonZeroUsize::new(at_once).unwrap_or(NonZeroUsize::MIN);
        self
    }

    /// A deadline of the whole batch, from the first look at it. What runs then ends as `timed-out`, whether or not
    /// anybody looks; what did not start is refused with `CANCELLED`, at the next look.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// What stops the batch early.
    pub fn stop_on(mut self, condition: StopOn) -> Self {
        self.stop_on = condition;
        self
    }

    /// A label for each item; the item's index is added to it.
    pub fn label(mut self, label: impl Into<Name>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Deadlines of each item.
    pub fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// Says what else is asked of each item: a schema, a persona, options. It has label and deadlines by then.
    pub fn each(mut self, add: impl Fn(StartRequest) -> StartRequest + Send + 'static) -> Self {
        self.each = Some(Box::new(add));
        self
    }

    /// One delegation for each prompt. The prompts are taken one by one as there is room.
    ///
    /// The iterator is asked at each look that has room, also after it said `None`: one that is fed from elsewhere says
    /// `None` while it has nothing, and the batch is at its end only when nothing is under way either.
    pub fn requests<I>(self, prompts: I) -> Batch
    where
        I: IntoIterator,
        I::Item: Into<Content> + 'static,
        I::IntoIter: Send + 'static,
    {
        Batch {
            prompts: Box::new(prompts.into_iter().map(Into::into)),
            next_index: 0,
            running: FuturesUnordered::new(),
            timer: None,
            stopped: None,
            stop: watch::Sender::new(None),
            settings: self,
        }
    }
}

impl fmt::Debug for BatchBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchBuilder")
            .field("provider", &self.provider)
            .field("limit", &self.limit)
            .field("deadline", &self.deadline)
            .field("stop_on", &self.stop_on)
            .finish_non_exhaustive()
    }
}

/// What became of one item.
pub type ItemOutcome = Result<Arc<SubagentResult>, DelegateError>;

/// One item that is done: disposed, or refused.
#[must_use = "it says what became of the item"]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BatchItem {
    /// The place of its prompt among the prompts, from 0.
    pub index: usize,
    /// Its run; `None` where it was never started because the batch had stopped.
    pub run: Option<RunId>,
    /// How long it took, from the start to the end of its teardown.
    pub elapsed: Duration,
    /// What became of it.
    pub outcome: ItemOutcome,
}

type Item = Pin<Box<dyn Future<Output = BatchItem> + Send>>;

/// A batch under way. Each item comes out once, in the order of settlement, and is disposed by then.
///
/// Items that are under way go on while nobody looks; new ones are started by looking. **Dropping** it cancels what is
/// under way.
#[must_use = "a batch starts its items when it is awaited"]
pub struct Batch {
    settings: BatchBuilder,
    prompts: Box<dyn Iterator<Item = Content> + Send>,
    next_index: usize,
    running: FuturesUnordered<Item>,
    timer: Option<Pin<Box<Sleep>>>,
    stopped: Option<CancelCause>,
    /// Tells the items that are under way.
    stop: watch::Sender<Option<CancelCause>>,
}

impl Batch {
    /// The next item that is done, or `None` when each has had its outcome.
    ///
    /// Cancel-safe: an item is either returned or still to come.
    pub async fn next(&mut self) -> Option<BatchItem> {
        if self.timer.is_none()
            && let Some(until) =
                self.settings.deadline.and_then(|deadline| Instant::now().checked_add(deadline))
        {
            self.timer = Some(Box::pin(self.settings.service.shared().sleep_until(until)));
        }
        loop {
            if let Some(cause) = self.stopped.clone() {
                if let Some(item) = self.running.next().await {
                    return Some(item);
                }
                // Each prompt that was never started is accounted for, too.
                self.prompts.next()?;
                let index = self.count();
                let outcome = Err(StartError::Cancelled { cause }.into());
                return Some(BatchItem { index, run: None, elapsed: Duration::ZERO, outcome });
            }
            while self.running.len() < self.settings.limit.get() {
                let Some(prompt) = self.prompts.next() else { break };
                let item = self.item(prompt);
                self.running.push(item);
            }
            if self.running.is_empty() {
                return None;
            }
            let late = async {
                match &mut self.timer {
                    Some(timer) => timer.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // First: a batch whose items are always ready must not outlive its deadline.
                () = late => self.stop(CancelCause::Deadline(DeadlineKind::Batch)),
                Some(item) = self.running.next() => {
                    if self.stops(&item.outcome) {
                        self.stop(CancelCause::Batch);
                    }
                    return Some(item);
                }
            }
        }
    }

    /// How many items are under way.
    pub fn under_way(&self) -> usize {
        self.running.len()
    }

    /// Stops the batch: what is under way is cancelled, the rest is refused. Every item still has its outcome.
    pub fn cancel(&mut self, cause: CancelCause) {
        self.stop(cause);
    }

    fn count(&mut self) -> usize {
        let index = self.next_index;
        self.next_index += 1;
        index
    }

    fn stops(&self, outcome: &ItemOutcome) -> bool {
        let success = outcome.as_ref().is_ok_and(|result| result.stop_reason.is_success());
        match self.settings.stop_on {
            StopOn::Never => false,
            StopOn::FirstSuccess => success,
            StopOn::FirstFailure => !success,
        }
    }

    fn stop(&mut self, cause: CancelCause) {
        if self.stopped.is_none() {
            let _ = self.stop.send(Some(cause.clone()));
            self.stopped = Some(cause);
        }
    }

    fn item(&mut self, prompt: Content) -> Item {
        let index = self.count();
        let settings = &self.settings;
        let mut request = StartRequest::new(&settings.parent, prompt);
        if let Some(label) = &settings.label {
            request = request.label(format!("{label} {index}"));
        }
        let deadlines = settings.deadlines.clone();
        if deadlines != Deadlines::default() {
            request = request.deadlines(deadlines);
        }
        if let Some(add) = &settings.each {
            request = add(request);
        }
        // It ends with its batch also while nobody looks.
        let until = self.timer.as_ref().map(|timer| timer.deadline());
        let begun = Instant::now();
        let starting = settings.service.start_until(&settings.provider, request, until);
        let run = Some(starting.id());
        let mut stop = self.stop.subscribe();
        Box::pin(async move {
            let stopped = async move {
                // The guard inside is no `Send`: it must not live across the await below.
                let cause = stop.wait_for(Option::is_some).await.ok().map(|cause| cause.clone());
                match cause {
                    Some(cause) => cause.unwrap_or(CancelCause::Batch),
                    // The batch is dropped, and this future with it.
                    None => std::future::pending().await,
                }
            };
            let outcome = delegate(starting, stopped).await;
            BatchItem { index, run, elapsed: begun.elapsed(), outcome }
        })
    }
}

/// Start, result, dispose; cancelled with the batch's own cause when it stops.
pub(crate) async fn delegate(starting: Starting, stopped: impl Future<Output = CancelCause>) -> ItemOutcome {
    let mut stopped = pin!(stopped);
    let core = starting.core();
    let mut starting = starting.into_future();
    let run = tokio::select! {
        biased;
        run = &mut starting => run?,
        cause = &mut stopped => {
            if let Some(core) = core {
                core.request_cancel(cause);
            }
            // It ends now, one way or the other; a run that was published in the same moment is cancelled as well.
            starting.await?
        }
    };
    let mut result = pin!(run.result());
    let result = tokio::select! {
        biased;
        result = &mut result => result,
        cause = &mut stopped => {
            run.cancel(cause);
            result.await
        }
    };
    let disposed = run.dispose().await;
    let result = result?;
    match disposed {
        Ok(()) => Ok(result),
        Err(source) => Err(DelegateError::Dispose { result, source }),
    }
}

impl futures_util::Stream for Batch {
    type Item = BatchItem;

    fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        // `next` is cancel-safe, so a fresh future for each poll loses nothing.
        let next = std::pin::pin!(Batch::next(self.get_mut()));
        next.poll(cx)
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("settings", &self.settings)
            .field("under_way", &self.running.len())
            .finish_non_exhaustive()
    }
}
