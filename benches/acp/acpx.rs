//! acpx, a client of the same protocol for the command line, with the very same agent: one prompt, and its end.

use crate::agent::Role;
use crate::pour::Pour;
use crate::stage::Failure;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use subagents_process::{Command, Exit, Ladder};
use tempfile::TempDir;

pub(crate) struct Acpx {
    node: PathBuf,
    script: PathBuf,
    agent: String,
    /// Its own: what the user has configured is none of this.
    home: TempDir,
}

impl Acpx {
    /// Where the peer suite's `install.sh` puts it; none where it is not installed.
    pub(crate) fn find(agent: &Path) -> Result<Option<Self>, Failure> {
        let peers = std::env::var_os("SUBAGENTS_PEERS").filter(|folder| !folder.is_empty());
        let target = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers");
        let bin = peers.map_or_else(target, PathBuf::from).join("acpx/node_modules/.bin");
        let script = bin.join("acpx");
        if !script.exists() {
            return Ok(None);
        }
        // It wants a newer node than there may be.
        let node = Some(bin.join("node")).filter(|node| node.exists()).unwrap_or_else(|| "node".into());
        let agent = format!("{} {}", agent.display(), Role::Agent.arguments().join(" "));
        Ok(Some(Self { node, script, agent, home: TempDir::new()? }))
    }

    /// How long it takes, up to its exit; that nothing is left is seen to after that.
    pub(crate) async fn ask(&self, pour: Pour) -> Result<Duration, Failure> {
        let home = self.home.path();
        let command = Command::new(&self.node, home)
            .arg(&self.script)
            .args(["--agent", &self.agent, "--format", "quiet", "exec", &pour.prompt()])
            .env("HOME", home)
            .stderr_tail(1000);
        let began = Instant::now();
        let mut process = command.spawn()?;
        let mut stdout = process.take_stdout().ok_or("no stdout")?;
        let mut length = 0;
        while let Some(portion) = stdout.read_chunk().await? {
            length += portion.len();
        }
        let exit = process.wait().await;
        let took = began.elapsed();
        let stderr = process.stderr().text();
        let leaked = process.terminate(Ladder::default()).await.is_leaked();
        // It ends the text with a line end.
        if length != pour.text() + 1 || exit != Exit::Code(0) || leaked {
            return Err(
                format!("acpx: {length} bytes of {pour:?}, {exit}, leaked: {leaked}; {stderr}").into()
            );
        }
        Ok(took)
    }
}
