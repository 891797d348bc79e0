//! The task that takes connections and owns them.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use std::time::Duration;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
    time::sleep,
};

/// More connections than this at a time wait until one is closed.
const CONNECTIONS: usize = 4096;
/// How long a request's head may take, and how long a connection may have nothing to ask.
const HEAD: Duration = Duration::from_mins(1);
/// The pause after an accept that failed, as with no file descriptors left.
const BREATH: Duration = Duration::from_millis(20);

/// Serves until `stop` is told or its sender is gone; then every connection is ended. Dropped, it ends them, too.
pub(crate) async fn serve(listener: TcpListener, router: Router, mut stop: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, router.clone()));
                }
                Err(_) => sleep(BREATH).await,
            },
        }
    }
    connections.shutdown().await;
}

async fn connection(stream: TcpStream, router: Router) {
    // Each event is a small packet that somebody waits for.
    let _ = stream.set_nodelay(true);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    // An error is a client that left, or a reply that breaks off: both are what was to happen.
    let _ = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}
