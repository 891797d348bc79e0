//! Foreign work against cancellation and the clock: the one place where a driver waits.

use crate::core::RunCore;
use pin_project_lite::pin_project;
use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use subagents_seam::{CancelCause, Instant, provider::BoxFuture};
use tokio::time::{Sleep, sleep_until};
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
    /// Whether the run is seen starting as soon as the work turns out to take time.
    admits: bool,
    /// Made when the work is not done at once: what is, carries nothing of this along.
    waits: Option<Pin<Box<Waits<'a>>>>,
}

pin_project! {
    /// What a race waits for beside its work.
    struct Waits<'a> {
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
    Race { core, token, work, until, admits: false, waits: None }
}

impl<'a, T> Race<'a, '_, T> {
    /// Shows the run as starting as soon as the work turns out to take time.
    pub(crate) fn admitting(mut self) -> Self {
        self.admits = true;
        self
    }

    fn waits(&mut self) -> Pin<&mut Waits<'a>> {
        let (core, listens, until) = (self.core, self.token.is_some(), self.until);
        let make = || {
            Box::pin(Waits {
                cancelled: listens.then(|| core.seat.token.cancelled()),
                timer: until.map(sleep_until),
            })
        };
        self.waits.get_or_insert_with(make).as_mut()
    }
}

impl<T> Future for Race<'_, '_, T> {
    type Output = Raced<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Raced<T>> {
        let this = self.get_mut();
        let Some(work) = this.work.get() else { return Poll::Pending };
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(done)) => return Poll::Ready(Raced::Done(Ok(done))),
            Ok(Poll::Pending) => {}
            Err(panic) => return Poll::Ready(Raced::Done(Err(panic))),
        }
        if std::mem::take(&mut this.admits) {
            this.core.admit();
        }
        if let Some(Some(token)) = &mut this.token
            && token.as_mut().poll(cx).is_ready()
        {
            this.core.cancel(CancelCause::Token);
        }
        let core = this.core;
        let waits = this.waits().project();
        if waits.cancelled.as_pin_mut().is_some_and(|cancelled| cancelled.poll(cx).is_ready()) {
            core.cause_or_inherited();
            return Poll::Ready(Raced::Cancelled);
        }
        if waits.timer.as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready()) {
            return Poll::Ready(Raced::Late);
        }
        Poll::Pending
    }
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
