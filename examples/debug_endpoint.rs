//! A debug endpoint: the live tree as text and JSON, and a way to cancel one run, on the loopback only.
//!
//! ```sh
//! cargo run --example debug_endpoint &
//! curl localhost:8008/tree
//! curl localhost:8008/tree.json
//! curl -X POST localhost:8008/cancel/<run id>
//! ```
//!
//! A run id is the `id` of a node whose `kind` is `run` in `/tree.json`.

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post},
};
use std::{error::Error, time::Duration};
use subagents::{CancelCause, Exec, RunId, StartRequest, SubagentRun, SubagentService, Tree};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let service = SubagentService::builder()
        .provider("sleep", Exec::new("sleep").arg("{}"))
        .limit("sleep", 3)
        .build()?;
    let root = service.root(std::env::current_dir()?)?;
    // Some wait for a slot; dropping the set would cancel those.
    let mut starts = tokio::task::JoinSet::new();
    for seconds in ["30", "60", "90", "120", "150"] {
        // Its result would be in its `Ended` event; here nobody waits for it.
        let starting =
            service.start("sleep", StartRequest::new(&root, seconds).label(format!("{seconds} s")));
        starts.spawn(async move { starting.await.map(SubagentRun::detach) });
    }

    let app = Router::new()
        // Looking reads the index: it waits for no actor and changes nothing.
        .route("/tree", get(async |State(service): State<SubagentService>| service.tree().to_string()))
        .route("/tree.json", get(async |State(service): State<SubagentService>| Json::<Tree>(service.tree())))
        .route("/cancel/{run}", post(cancel))
        .with_state(service.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8008").await?;
    say(&format!("looking at http://{}/tree until Ctrl-C", listener.local_addr()?));
    let interrupted = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, app).with_graceful_shutdown(interrupted).await?;
    let _ = service.shutdown(Duration::from_secs(5)).await;
    drop(root);
    Ok(())
}

#[expect(clippy::print_stderr, reason = "an example has nowhere else to speak")]
fn say(line: &str) {
    eprintln!("{line}");
}

async fn cancel(State(service): State<SubagentService>, Path(run): Path<String>) -> StatusCode {
    match run.parse::<RunId>() {
        Err(_) => StatusCode::BAD_REQUEST,
        Ok(run) if service.cancel(run, CancelCause::requested("from the debug endpoint")) => {
            StatusCode::ACCEPTED
        }
        Ok(_) => StatusCode::NOT_FOUND,
    }
}
