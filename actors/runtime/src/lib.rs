//! The actor system of `subagents`: a registry actor that supervises one run actor per delegation, and the handles on
//! them.
//!
//! ```text
//! SubagentService ── the handle (Clone)
//! └─ registry actor ── routes, admits, supervises every run actor
//!    └─ run actor ── one delegation's address; owns the one driver task
//!       └─ driver task ── waits for a slot, starts, publishes, runs, settles, closes
//! ```
//!
//! ```
//! use subagents_runtime::SubagentService;
//! use subagents_seam::{Capabilities, StartRequest, SubagentResult, provider_fn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let upper = provider_fn(Capabilities::NONE, |start, _run| async move {
//!     Ok(SubagentResult::completed(start.prompt().to_text().to_uppercase()))
//! });
//! let service = SubagentService::builder().provider("upper", upper).build()?;
//! let root = service.root(std::env::current_dir()?)?;
//! let answer = service.delegate("upper", StartRequest::new(&root, "hello")).await?;
//! assert_eq!(answer.text(), "HELLO");
//! assert!(service.shutdown(std::time::Duration::from_secs(1)).await.is_clean());
//! # Ok(())
//! # }
//! ```
//!
//! # What a drop means
//!
//! | handle | drop means | to do otherwise |
//! |---|---|---|
//! | [`SubagentService`] (Clone) | last clone: cancel all; the clean-up goes on in tracked tasks | [`shutdown`](SubagentService::shutdown) |
//! | [`Root`] | cancel everything below it | keep it |
//! | [`Starting`] | cancel; the start is rolled back in its own task | await it |
//! | [`SubagentRun`] | cancel with the cause *dropped*, and a warning that names the run | [`dispose`](SubagentRun::dispose), [`detach`](SubagentRun::detach), [`watcher`](SubagentRun::watcher) |
//! | a future of `result` or `dispose` | nothing: the work behind it goes on | |
//! | [`Registration`] | no new starts; live runs go on; a late drop never removes a newer registration of the same name | |
//! | [`EventStream`] | unsubscribe | |
//!
//! Every drop may happen outside a runtime. None blocks, spawns or panics.

mod admission;
mod batch;
mod builder;
mod checks;
mod clock;
mod core;
mod driver;
mod events;
mod handle;
mod index;
mod kept;
mod lineage;
mod progress;
mod providers;
mod race;
mod registry;
mod root;
mod run;
mod run_actor;
mod seat;
mod service;
mod settlement;
mod shared;
mod shutdown;
mod tree;

pub use batch::{Batch, BatchBuilder, BatchItem, ItemOutcome, StopOn};
pub use builder::ServiceBuilder;
pub use events::{EventStream, Lagged};
pub use handle::{RunWatcher, StartFuture, Starting, SubagentRun};
pub use progress::{ProgressStream, ProgressUpdate};
pub use providers::Registration;
pub use root::Root;
pub use service::{SubagentService, WeakService};
pub use shutdown::{ServiceEnd, ShutdownReport};
