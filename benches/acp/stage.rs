//! Where delegations are made, in each of the ways that are compared: from the start to the moment at which nothing is left
//! of it, and none of them counts unless its answer is whole.

use crate::acpx::Acpx;
use crate::agent::Role;
use crate::pour::Pour;
use std::env::{current_exe, temp_dir};
use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use subagents::{Acp, ContentBlock, Deadlines, Exec, Root, StartRequest, StopReason, SubagentService};
use subagents_process::{Command, Exit, Ladder};
use tokio::time::timeout;

/// Nothing here takes that long; what does has failed.
const PATIENCE: Duration = Duration::from_mins(2);
/// More than any answer here has.
const LONGEST: usize = 1 << 30;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A way to have a prompt answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// Our provider of agents.
    Acp,
    /// The same with a secret, for which all that the agent says is looked through.
    AcpMasked,
    /// Our provider of programs: the same, but for the protocol.
    Exec,
    /// A process and its lines, which nobody makes anything of.
    Raw,
    /// acpx, one shot.
    Acpx,
}

impl Way {
    pub(crate) const ALL: [Self; 5] = [Self::Acp, Self::AcpMasked, Self::Exec, Self::Raw, Self::Acpx];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Acp => "acp",
            Self::AcpMasked => "acp, masked",
            Self::Exec => "exec",
            Self::Raw => "raw lines",
            Self::Acpx => "acpx",
        }
    }
}

pub(crate) struct Stage {
    service: SubagentService,
    root: Root,
    program: PathBuf,
    acpx: Option<Acpx>,
}

impl Stage {
    pub(crate) fn open() -> Result<Self, Failure> {
        let program = current_exe()?;
        let agent = || {
            Acp::new(&program)
                .args(Role::Agent.arguments())
                .max_output(LONGEST)
                .max_total_output(LONGEST as u64)
        };
        let service = SubagentService::builder()
            .provider(Way::Acp.name(), agent())
            .provider("acp-masked", agent().env("AGENT_API_KEY", "sk-0123456789-abcdef"))
            .provider(Way::Exec.name(), Exec::new(&program).args(Role::Program.arguments()))
            .deadlines(Deadlines::new().total(PATIENCE))
            .build()?;
        let root = service.root(temp_dir())?;
        let acpx = Acpx::find(&program)?;
        Ok(Self { service, root, program, acpx })
    }

    /// Whether it can be done here.
    pub(crate) fn has(&self, way: Way) -> bool {
        way != Way::Acpx || self.acpx.is_some()
    }

    /// Has it answered, and says how long that took.
    pub(crate) async fn delegate(&self, way: Way, pour: Pour) -> Result<Duration, Failure> {
        let began = Instant::now();
        match way {
            Way::Acp => self.through("acp", pour).await?,
            Way::AcpMasked => self.through("acp-masked", pour).await?,
            Way::Exec => self.through("exec", Pour::ONE).await?,
            Way::Raw => timeout(PATIENCE, self.raw(pour)).await??,
            Way::Acpx => {
                let acpx = self.acpx.as_ref().ok_or("acpx is not here")?;
                return timeout(PATIENCE, acpx.ask(pour)).await?;
            }
        }
        Ok(began.elapsed())
    }

    async fn through(&self, provider: &str, pour: Pour) -> Result<(), Failure> {
        let run = self.service.start(provider, StartRequest::new(&self.root, pour.prompt())).await?;
        let result = run.result().await?;
        run.dispose().await?;
        let length: usize =
            result.output.blocks().iter().filter_map(ContentBlock::as_text).map(str::len).sum();
        if result.stop_reason != StopReason::Completed
            || length != pour.text()
            || result.details.truncated.is_some()
        {
            return Err(format!(
                "{provider}: {:?} with {length} bytes of {pour:?}: {:?}",
                result.stop_reason, result.diagnostic
            )
            .into());
        }
        Ok(())
    }

    async fn raw(&self, pour: Pour) -> Result<(), Failure> {
        let command = Command::new(&self.program, temp_dir()).args(Role::Lines(pour).arguments());
        let mut process = command.spawn()?;
        let mut lines = process.take_stdout().ok_or("no stdout")?.into_lines(LONGEST);
        let mut count = 0;
        while let Some(line) = lines.next().await? {
            count += usize::from(line.len() > pour.bytes);
        }
        let exit = process.wait().await;
        let leaked = process.terminate(Ladder::default()).await.is_leaked();
        if count != pour.chunks || exit != Exit::Code(0) || leaked {
            return Err(format!("raw: {count} lines of {pour:?}, {exit}, leaked: {leaked}").into());
        }
        Ok(())
    }

    /// Ends all that is left.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        let report = self.service.shutdown(Duration::from_secs(10)).await;
        if report.is_clean() { Ok(()) } else { Err(format!("something is left: {report:?}").into()) }
    }
}
