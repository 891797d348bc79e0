//! Foreign work against cancellation and the clock: the one place where a driver waits.

use crate::core::RunCore;
use pin_project_lite::pin_project;
use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};
use subagents_seam::{CancelCause, Instant, provider::BoxFuture};
use tokio::{
    task::unconstrained,
    time::{Sleep, sleep_until},
};
use tokio_util::sync::{WaitForCancellationFuture, WaitForCancellationFutureOwned};

/// The token that a request brought, if it brought one.
pub(crate) type Token = Option<Pin<Box<WaitForCancellationFutureOwned>>>;
pub(crate) type Panic = Box<dyn Any + Send>;

/// What came first.
pub(crate) enum Raced<T> {
    Done(Result<T, Panic>),
    Cancelled,
    Late,
}

pin_project! {
    /// Polls foreign work until it is done, the run is cancelled (where that is listened for), or a time has come, in this
    /// order. A panic of the work is a value. Cancel-safe: the work stays with the caller.
    ///
    /// A future by hand: a hundred thousand of them may wait at once, and an `async fn` keeps its arguments twice.
    #[must_use = "futures do nothing unless awaited"]
    pub(crate) struct Race<'a, 'w, T> {
        core: &'a Arc<RunCore>,
        token: Option<&'a mut Token>,
        work: &'a mut Contained<BoxFuture<'w, T>>,
        until: Option<Instant>,
        // These two are made when the work is not done at once: most deadlines are never armed.
        #[pin]
        cancelled: Option<WaitForCancellationFuture<'a>>,
        #[pin]
        timer: Option<Sleep>,
    }
}

/// See [`Race`]. Without a `token` it does not listen for a cancel.
pub(crate) fn race<'a, 'w, T>(
    core: &'a Arc<RunCore>,
    token: Option<&'a mut Token>,
    work: &'a mut Contained<BoxFuture<'w, T>>,
    until: Option<Instant>,
) -> Race<'a, 'w, T> {
    Race { core, token, work, until, cancelled: None, timer: None }
}

impl<T> Future for Race<'_, '_, T> {
    type Output = Raced<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Raced<T>> {
        let mut this = self.project();
        if let Some(done) = this.work.poll(cx) {
            return Poll::Ready(Raced::Done(done));
        }
        if let Some(token) = this.token {
            if token.as_mut().is_some_and(|token| is_over(token.as_mut(), cx)) {
                this.core.cancel(CancelCause::Token);
            }
            if this.cancelled.is_none() {
                this.cancelled.set(Some(this.core.seat.token.cancelled()));
            }
            if this.cancelled.as_pin_mut().is_some_and(|cancelled| is_over(cancelled, cx)) {
                this.core.cause_or_inherited();
                return Poll::Ready(Raced::Cancelled);
            }
        }
        if let Some(until) = *this.until {
            if this.timer.is_none() {
                this.timer.set(Some(sleep_until(until)));
            }
            if this.timer.as_pin_mut().is_some_and(|timer| is_over(timer, cx)) {
                return Poll::Ready(Raced::Late);
            }
        }
        Poll::Pending
    }
}

/// Whether a wait of our own is over. Work that uses up the task's budget in every poll must not keep it from being seen:
/// tokio answers "not yet" to whoever asks with no budget left.
fn is_over(wait: Pin<&mut impl Future>, cx: &mut Context<'_>) -> bool {
    pin!(unconstrained(wait)).poll(cx).is_ready()
}

/// Polls foreign work once: none where it takes time. Most of it takes none, and a [`Race`] is large. The race that
/// follows polls it a second time at once, which a future has to bear.
pub(crate) async fn at_once<T>(work: &mut Contained<BoxFuture<'_, T>>) -> Option<Raced<T>> {
    poll_fn(|cx| Poll::Ready(work.poll(cx).map(Raced::Done))).await
}

/// Something of foreign code, whose destructor may panic: wherever it is dropped, also in an unwinding or cut driver, the
/// panic ends there. Two of them at once would otherwise abort the host.
pub(crate) struct Contained<T>(Option<T>);

impl<T> Contained<T> {
    pub(crate) fn new(foreign: T) -> Self {
        Self(Some(foreign))
    }

    pub(crate) fn get(&mut self) -> Option<&mut T> {
        self.0.as_mut()
    }

    pub(crate) fn take(mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T> Contained<BoxFuture<'_, T>> {
    /// What came of it, if it is done; a panic is a value.
    fn poll(&mut self, cx: &mut Context<'_>) -> Option<Result<T, Panic>> {
        let work = self.get()?;
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(done)) => Some(Ok(done)),
            Ok(Poll::Pending) => None,
            Err(panic) => Some(Err(panic)),
        }
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        let foreign = self.0.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(foreign))) {
            tracing::warn!(message = %message_of(panic), "a destructor of foreign code panicked");
        }
    }
}

/// What a panic says. It ends here: its payload is foreign as well, and a payload whose destructor panics is never freed.
pub(crate) fn message_of(panic: Panic) -> String {
    let text = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
    let message = text
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with a value that is no text".to_owned());
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
    message
}
