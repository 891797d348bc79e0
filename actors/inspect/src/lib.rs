//! A running service from outside: its tree, what happens in it, and the end of one of its runs, for other programs of the
//! same user.
//!
//! The host opens a socket, in a folder that only its user may enter; whoever connects is asked who it is by the system.
//! Looking reads the index of the service and changes nothing; prompts and answers are not shown. What goes over the socket
//! is written in a version, which both sides tell.
//!
//! Neither side trusts the other to go on: a host serves so many at once, each for so long, and whoever looks says how long it
//! waits, for the whole of an answer, and reads no more than 256 MiB of it. Whoever looks blocks its thread for that time.
//!
//! ```
//! use std::time::Duration;
//! use subagents_inspect::{Folder, Inspector, hosts};
//! use subagents_runtime::SubagentService;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let temp = tempfile::tempdir()?;
//! # let folder = Folder::at(temp.path().join("subagents"));
//! // The host, for as long as it holds this. `Folder::of_user()` is where `subagents tree` looks.
//! let service = SubagentService::builder().build()?;
//! let inspector = Inspector::open(&service, "my service", &folder)?;
//!
//! // Another program.
//! let found = tokio::task::spawn_blocking(move || hosts(&folder)).await??;
//! assert_eq!(found.len(), 1);
//! let seen = found.into_iter().next().expect("one");
//! let seen = tokio::task::spawn_blocking(move || seen.look(Duration::from_secs(5))).await??;
//! assert_eq!(seen.host.name, "my service");
//! assert_eq!(seen.tree.nodes.len(), 1);
//! # drop(inspector);
//! # Ok(())
//! # }
//! ```

mod client;
mod folder;
mod name;
mod server;
mod wire;

pub use client::{HostSocket, InspectError, Stopper, Watch, hosts};
pub use folder::Folder;
pub use server::{Inspector, OpenError};
pub use wire::{CancelOutcome, Change, HostInfo, Seen};
