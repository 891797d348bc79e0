//! Real children, of `/bin/sh` and the core utilities only.

#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests, helpers included")]

mod descendants;
mod drops;
mod host;
mod ledger;
mod output;
mod start;
mod support;
mod teardown;
