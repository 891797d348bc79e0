//! What an author of a provider writes, and the erased forms a loader and the runtime hold.

use crate::{
    Capabilities, Instant, LocalAgent, ResultError, RunContext, StartContext, StartError, SubagentResult,
};
use std::{fmt, future::Future, pin::Pin, sync::Arc};

/// A boxed future, as the erased traits return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One way to run a child (SPEC 1.3).
///
/// It declares once what it can honour; the service refuses the rest before `start` is called. One provider may be
/// started many times at once; the starts share nothing but `&self` (SPEC 3.4).
///
/// ```
/// use subagents_seam::{Capabilities, Child, Closed, Instant, ResultError, RunContext, StartContext, StartError};
/// use subagents_seam::{SubagentProvider, SubagentResult};
///
/// struct Echo;
/// struct EchoChild(String);
///
/// impl SubagentProvider for Echo {
///     type Child = EchoChild;
///     async fn start(&self, cx: StartContext) -> Result<EchoChild, StartError> {
///         Ok(EchoChild(cx.prompt().to_text()))
///     }
/// }
/// impl Child for EchoChild {
///     async fn run(&mut self, _: RunContext) -> Result<SubagentResult, ResultError> {
///         Ok(SubagentResult::completed(std::mem::take(&mut self.0)))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no provider",
    note = "implement `SubagentProvider`, or make one of a closure with `provider_fn`"
)]
pub trait SubagentProvider: Send + Sync + 'static {
    /// What a successful start gives.
    type Child: Child;

    /// What it can honour. Asked once, at registration.
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    /// Whether a child sees the parent's finished conversation. Descriptive: it drives the wording of tools and
    /// implies no authority (SPEC 1.3).
    fn inherits_parent_context(&self) -> bool {
        false
    }

    /// Whether a blank answer of a completed child is an answer. By default it is an error of category
    /// `empty-answer`.
    fn allows_blank_answer(&self) -> bool {
        false
    }

    /// Starts one child. Its success is the publication: from then on the run has a handle and events.
    ///
    /// # Errors
    /// Whatever keeps the child from being ready; everything partial must be gone by then (SPEC 3.3).
    ///
    /// # Cancellation safety
    /// Must be safe to drop: after a cancel or the start deadline the future is given the cancel grace and then
    /// dropped, and what it had must go with it. A panic is contained and rejects the start.
    fn start(&self, cx: StartContext) -> impl Future<Output = Result<Self::Child, StartError>> + Send;
}

/// A started child.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no child",
    note = "implement `Child` with `run`, and `close` where there is something to tear down"
)]
pub trait Child: Send + 'static {
    /// Runs the child to its end. Called once.
    ///
    /// A child's failure is an `Ok` with a stop reason; the runtime contains a panic and settles it as `error`.
    ///
    /// # Errors
    /// Only where the provider itself cannot tell what became of the child.
    ///
    /// # Cancellation safety
    /// Must be safe to drop. After a cancel it may return its partial answer within the cancel grace; then, and at
    /// a deadline at once, it is dropped, and `close` follows.
    fn run(&mut self, cx: RunContext) -> impl Future<Output = Result<SubagentResult, ResultError>> + Send;

    /// Tears the child down until nothing of it is left, or says what is.
    ///
    /// Called once, after settlement, also after a panic in `run`. It should end by `deadline`; past it the future
    /// is dropped and the run counts as leaked. Dropping the child without `close` must stop it as well as a `Drop`
    /// can: without blocking.
    fn close(self, deadline: Instant) -> impl Future<Output = Closed> + Send
    where
        Self: Sized,
    {
        let _ = deadline;
        async { Closed::Clean }
    }

    /// The agent, where the child is one in this process. Having it makes the run local (SPEC 1.7).
    fn local_agent(&self) -> Option<Arc<dyn LocalAgent>> {
        None
    }
}

/// How a teardown ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Closed {
    /// Nothing is left.
    Clean,
    /// Something may be left; in few words, what.
    Leaked(Arc<str>),
}

/// A provider of any type, as a loader holds it. Clone shares it.
///
/// It does not implement [`SubagentProvider`] itself, so that every provider converts into it.
#[derive(Clone)]
pub struct DynProvider(Arc<dyn Erased>);

impl<P: SubagentProvider> From<P> for DynProvider {
    fn from(provider: P) -> Self {
        Self(Arc::new(provider))
    }
}

impl DynProvider {
    /// See [`SubagentProvider::capabilities`].
    pub fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    /// See [`SubagentProvider::inherits_parent_context`].
    pub fn inherits_parent_context(&self) -> bool {
        self.0.inherits_parent_context()
    }

    /// See [`SubagentProvider::allows_blank_answer`].
    pub fn allows_blank_answer(&self) -> bool {
        self.0.allows_blank_answer()
    }

    /// See [`SubagentProvider::start`].
    pub fn start(&self, cx: StartContext) -> BoxFuture<'_, Result<Box<dyn DynChild>, StartError>> {
        self.0.start(cx)
    }
}

impl fmt::Debug for DynProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynProvider").field("capabilities", &self.capabilities()).finish_non_exhaustive()
    }
}

trait Erased: Send + Sync {
    fn capabilities(&self) -> Capabilities;
    fn inherits_parent_context(&self) -> bool;
    fn allows_blank_answer(&self) -> bool;
    fn start(&self, cx: StartContext) -> BoxFuture<'_, Result<Box<dyn DynChild>, StartError>>;
}

impl<P: SubagentProvider> Erased for P {
    fn capabilities(&self) -> Capabilities {
        SubagentProvider::capabilities(self)
    }

    fn inherits_parent_context(&self) -> bool {
        SubagentProvider::inherits_parent_context(self)
    }

    fn allows_blank_answer(&self) -> bool {
        SubagentProvider::allows_blank_answer(self)
    }

    fn start(&self, cx: StartContext) -> BoxFuture<'_, Result<Box<dyn DynChild>, StartError>> {
        Box::pin(async move {
            let child = SubagentProvider::start(self, cx).await?;
            Ok(Box::new(child) as Box<dyn DynChild>)
        })
    }
}

/// A child of any type. Implemented for every [`Child`].
pub trait DynChild: Send {
    /// See [`Child::run`].
    fn run(&mut self, cx: RunContext) -> BoxFuture<'_, Result<SubagentResult, ResultError>>;
    /// See [`Child::close`].
    fn close(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Closed>;
    /// See [`Child::local_agent`].
    fn local_agent(&self) -> Option<Arc<dyn LocalAgent>>;
}

impl<C: Child> DynChild for C {
    fn run(&mut self, cx: RunContext) -> BoxFuture<'_, Result<SubagentResult, ResultError>> {
        Box::pin(Child::run(self, cx))
    }

    fn close(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Closed> {
        Box::pin(Child::close(*self, deadline))
    }

    fn local_agent(&self) -> Option<Arc<dyn LocalAgent>> {
        Child::local_agent(self)
    }
}

impl fmt::Debug for dyn DynChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DynChild")
    }
}

/// The smallest provider: a closure that is the whole child. Its start always succeeds; it is dropped to end it.
///
/// ```
/// use subagents_seam::{Capabilities, SubagentResult, provider_fn};
/// let upper = provider_fn(Capabilities::NONE, |start, _run| async move {
///     Ok(SubagentResult::completed(start.prompt().to_text().to_uppercase()))
/// });
/// # let _: subagents_seam::DynProvider = upper.into();
/// ```
pub fn provider_fn<F, Fut>(capabilities: Capabilities, run: F) -> impl SubagentProvider
where
    F: Fn(StartContext, RunContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<SubagentResult, ResultError>> + Send + 'static,
{
    FnProvider { capabilities, run: Arc::new(run) }
}

struct FnProvider<F> {
    capabilities: Capabilities,
    run: Arc<F>,
}

struct FnChild<F> {
    start: Option<StartContext>,
    run: Arc<F>,
}

impl<F, Fut> SubagentProvider for FnProvider<F>
where
    F: Fn(StartContext, RunContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<SubagentResult, ResultError>> + Send + 'static,
{
    type Child = FnChild<F>;

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    async fn start(&self, cx: StartContext) -> Result<FnChild<F>, StartError> {
        Ok(FnChild { start: Some(cx), run: self.run.clone() })
    }
}

impl<F, Fut> Child for FnChild<F>
where
    F: Fn(StartContext, RunContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<SubagentResult, ResultError>> + Send + 'static,
{
    async fn run(&mut self, cx: RunContext) -> Result<SubagentResult, ResultError> {
        match self.start.take() {
            Some(start) => (self.run)(start, cx).await,
            None => Err(ResultError::wait_failed("run was called twice")),
        }
    }
}
