//! What is done to a host while it works, and what has to be true of all that belongs to it.

use super::play::Play;
use super::real::alive::{interrupt, kill, parent};
use super::stage::{Ended, GONE, Live, PATIENCE, Provider, Stage, until};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One host at work.
pub(crate) struct Hall<'a> {
    pub(crate) stage: Arc<Stage>,
    pub(crate) env: BTreeMap<String, OsString>,
    pub(crate) play: &'a Play<'a>,
}

impl Hall<'_> {
    /// The host's.
    pub(crate) fn program(&self) -> PathBuf {
        self.play.installed.join(self.play.host.program())
    }

    /// The host as what it delegates to.
    pub(crate) fn itself(&self, token: &str) -> Provider<'static> {
        // What it has to know of a server over HTTP stands in its configuration, or in these.
        let told = self.play.host.told.get(self.play.scenario.name);
        let told = told.into_iter().flat_map(|told| &told.env);
        let told = told.map(|(name, value)| (name.clone(), value.replace("@TOKEN@", token).into()));
        let env = self.env.clone().into_iter().chain(told).collect();
        let ask = self.play.host.ask.iter().map(OsString::from);
        let command = std::iter::once(self.program().into_os_string()).chain(ask).collect();
        Provider { command, env, tool: "subagent", timeout: None }
    }

    /// Waits until what it delegated to hangs, with all that belongs to it.
    async fn hangs(&self, live: &mut Live) -> Result<(), String> {
        let hangs = self.stage.child().join("hangs");
        let seen = || {
            let children = self.stage.children();
            let tail =
                |file: &str| children.iter().any(|line| line.starts_with("tail ") && line.contains(file));
            hangs.exists() && tail("/held") && tail("/hangs")
        };
        until("what it delegates to hangs", PATIENCE, || match live.has_ended() {
            Some(ended) => Err(format!("it ended before: {ended:?}")),
            None => Ok(seen()),
        })
        .await
    }

    pub(crate) fn has_hung(&self) -> Result<(), String> {
        let hung = self.stage.child().join("hangs").exists();
        hung.then_some(()).ok_or_else(|| "what it delegates to never came so far as to hang".to_owned())
    }

    /// The run is seen by its user, who ends it.
    pub(crate) async fn killed_from_outside(&self, live: &mut Live) -> Result<(), String> {
        self.hangs(live).await?;
        let subagents = |args: &[&str]| {
            let args: Vec<_> = args.iter().map(ToString::to_string).collect();
            self.stage.start(Path::new(env!("CARGO_BIN_EXE_subagents")), &args, &self.env, "")
        };
        let tree = subagents(&["tree"])?.end().await?.well()?;
        // `├─ child a short task [37486a1f] · running · …`
        let run = tree.out.split_once("child a short task [").and_then(|(_, rest)| rest.split_once(']'));
        let (run, rest) = run.ok_or_else(|| format!("`subagents tree` does not show it: {tree:?}"))?;
        if !rest.starts_with(" · running") {
            return Err(format!("`subagents tree` does not say that it runs: {tree:?}"));
        }
        subagents(&["kill", run])?.end().await?.well()?;
        let children = self.stage.children();
        if children.is_empty() { Ok(()) } else { Err(format!("`subagents kill` has left {children:?}")) }
    }

    /// The server is gone at once, and with it what it had started; the host is not.
    pub(crate) async fn server_killed(&self, live: &mut Live) -> Result<(), String> {
        self.hangs(live).await?;
        kill(self.stage.server()?);
        until("what it delegated to is gone", GONE, || Ok(self.stage.children().is_empty()))
            .await
            .map_err(|fault| format!("{fault}: {:?}", self.stage.alive()))
    }

    /// Ctrl-C, for each process of the host: for the program, and what it may have started in its place.
    pub(crate) async fn interrupted(&self, mut live: Live) -> Result<Ended, String> {
        self.hangs(&mut live).await?;
        let processes = self.stage.processes();
        let of_it = |pid: &u32| processes.iter().any(|process| process.pid == *pid);
        let mut above = parent(self.stage.server()?).filter(of_it);
        while let Some(pid) = above {
            interrupt(pid);
            above = parent(pid).filter(of_it);
        }
        live.end().await.map_err(|fault| format!("after it was interrupted {fault}"))
    }

    /// The process that has started the server is gone at once, whatever it may have wanted to do.
    pub(crate) async fn killed(&self, mut live: Live) -> Result<(), String> {
        self.hangs(&mut live).await?;
        let processes = self.stage.processes();
        let of_it = |pid: &u32| processes.iter().any(|process| process.pid == *pid);
        kill(parent(self.stage.server()?).filter(of_it).ok_or("the server's parent is not of the host")?);
        until("nothing is alive of it", GONE, || {
            // It is ours to wait for.
            let _ = live.has_ended();
            Ok(self.stage.alive().is_empty())
        })
        .await
        .map_err(|fault| format!("{fault}: {:?}", self.stage.alive()))
    }
}
