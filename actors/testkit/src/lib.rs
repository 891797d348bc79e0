//! What the tests of `subagents` and of its users stand on: a child that does what a script says, and the contract that
//! every provider keeps. It belongs under `[dev-dependencies]`.
//!
//! # A scripted child
//!
//! [`Scripted`] is a provider whose children play a [`Script`]: answer, fail, hang, panic, leak, delegate further. Its
//! [`Probe`] counts what was started and what is left. Nothing here needs a real clock: under tokio's paused one an hour
//! of a script passes at once: `#[tokio::test(start_paused = true)]`, which needs tokio's feature `test-util`.
//!
//! ```
//! use subagents_runtime::SubagentService;
//! use subagents_seam::StartRequest;
//! use subagents_testkit::{Script, Scripted};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let child = Scripted::by(|prompt| Script::answer(prompt.to_uppercase()).say("thinking… "));
//! let probe = child.probe();
//! let service = SubagentService::builder().provider("child", child).build()?;
//! let root = service.root(std::env::temp_dir())?;
//!
//! let result = service.delegate("child", StartRequest::new(&root, "hello")).await?;
//! assert_eq!(result.text(), "HELLO");
//! assert_eq!((probe.starts(), probe.alive()), (1, 0));
//! # Ok(())
//! # }
//! ```
//!
//! # The contract of a provider
//!
//! [`contract`] asks for a provider in each [`Scenario`], drives it through the real runtime's public face, and reports
//! for each check whether it held. A scenario for which there is no provider is reported as not covered.
//!
//! ```
//! use subagents_testkit::{Scripted, contract};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let report = contract(|scenario| Some(Scripted::new(scenario.script()))).await;
//! report.assert();
//! # }
//! ```
//!
//! # A model
//!
//! With the feature `model-server`, the module `model` has a model server on the loopback for real agents: it says and
//! calls what the prompt or a closure tells it to, in four protocols.

mod contract;
#[cfg(feature = "model-server")]
pub mod model;
mod probe;
mod script;
mod scripted;

pub use contract::{Contract, Outcome, Report, Row, Scenario, contract};
pub use probe::{Counts, Probe};
pub use script::Script;
pub use scripted::{Scripted, ScriptedChild};
