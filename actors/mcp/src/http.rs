//! Clients over HTTP, on the loopback: the protocol's "streamable HTTP".

mod authorization;
mod caller;
mod connections;
mod late;
mod presence;
mod replay;
mod sessions;

pub use authorization::{HttpToken, HttpTokenError};
pub(crate) use caller::Visitors;
pub(crate) use connections::serve;
