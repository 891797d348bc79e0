//! The testkit, tested: its scripted children, its suite on them, and the suite on providers that break the contract.

mod broken;
mod contract;
#[cfg(feature = "model-server")]
mod model;
mod scripted;
