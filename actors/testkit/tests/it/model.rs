//! The model server, asked over its sockets by a client of nobody's.

mod client;
mod dialect;
mod everywhere;
mod failures;
mod life;
mod shape;
mod strange;

use std::time::Duration;
use tokio::time::timeout;

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = timeout(PATIENCE, future).await;
    assert!(done.is_ok(), "{what} took longer than {PATIENCE:?}");
    done.expect("it was in time")
}
