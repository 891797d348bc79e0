//! The testkit, tested: its scripted children, its suite on them, and the suite on providers that break the contract.

mod broken;
mod contract;
mod scripted;
