//! Clients over HTTP, on the loopback: the protocol's "streamable HTTP".

mod admission;
mod connections;
mod presence;
mod sessions;

pub use admission::{HttpToken, HttpTokenError};
pub(crate) use connections::serve;
