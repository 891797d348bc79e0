//! `subagents mcp --http`, for as long as somebody calls it.

use super::hall::Hall;
use super::real::alive::terminate;
use super::stage::{Live, PATIENCE, until};
use std::path::Path;

pub(crate) struct Server {
    /// With the token in it, where that was not given.
    pub(crate) url: String,
    live: Live,
}

impl Server {
    /// It listens.
    pub(crate) async fn start(
        hall: &Hall<'_>,
        token: Option<&str>,
        cap: Option<&str>,
    ) -> Result<Self, String> {
        let mut env = hall.env.clone();
        env.extend(cap.map(|cap| ("SUBAGENTS_MAX_DEPTH".to_owned(), cap.into())));
        env.extend(token.map(|token| ("SUBAGENTS_MCP_TOKEN".to_owned(), token.into())));
        let args = ["mcp", "--http", "127.0.0.1:0"].map(str::to_owned);
        let program = Path::new(env!("CARGO_BIN_EXE_subagents"));
        let mut live = hall.stage.start(program, &args, &env, "")?;
        until("the server says where it is", PATIENCE, || match live.has_ended() {
            Some(ended) => Err(format!("it ended before: {ended:?}")),
            None => Ok(live.out().ends_with('\n')),
        })
        .await?;
        let url = live.out().trim_end().to_owned();
        if url.lines().count() == 1 && url.starts_with("http://127.0.0.1:") {
            Ok(Self { url, live })
        } else {
            Err(format!("{url:?} is no address"))
        }
    }

    /// It goes when it is told to.
    pub(crate) async fn stop(self, hall: &Hall<'_>) -> Result<(), String> {
        terminate(hall.stage.server()?);
        let ended = self.live.end().await?;
        match ended.code {
            Some(143) => Ok(()),
            _ => Err(format!("the server ended otherwise: {ended:?}")),
        }
    }
}
