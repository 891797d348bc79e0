//! The contract of a provider, held against it through the real runtime.

mod before;
mod cancel;
mod checks;
mod deadlines;
mod drops;
mod report;
mod scenario;
mod settled;
mod shown;
mod siblings;
mod stage;

pub use report::{Outcome, Report, Row};
pub use scenario::Scenario;

use stage::{Settings, Stage};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use subagents_seam::DynProvider;

/// Holds the contract against a provider, with the default settings of [`Contract`].
///
/// `provider_for` is asked once per [`Scenario`] for a provider that behaves so; `None` says that this provider cannot
/// be brought to it, and the scenario is reported as not covered.
///
/// ```
/// use subagents_seam::{Capabilities, SubagentResult, provider_fn};
/// use subagents_testkit::{Scenario, contract};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let report = contract(|scenario| match scenario {
///     Scenario::Answers => Some(provider_fn(Capabilities::NONE, |start, _run| async move {
///         Ok(SubagentResult::completed(start.prompt().to_text()))
///     })),
///     _ => None,
/// })
/// .await;
/// report.assert();
/// assert!(report.to_string().contains("not covered"));
/// # }
/// ```
pub async fn contract<F, P>(provider_for: F) -> Report
where
    F: Fn(Scenario) -> Option<P>,
    P: Into<DynProvider>,
{
    Contract::new().run(provider_for).await
}

/// The contract suite with settings of one's own. The function [`contract`] has the defaults.
///
/// It runs one check after another, on tokio's clock, paused or not, and spawns nothing of its own. Every wait in it has
/// a deadline. A provider that starts processes or waits for a peer needs the real clock: a paused one runs ahead of them.
#[derive(Clone)]
#[must_use = "a suite does nothing until it runs"]
pub struct Contract {
    settings: Settings,
}

impl Default for Contract {
    fn default() -> Self {
        Self::new()
    }
}

impl Contract {
    /// The defaults: a patience of 10 s, a grace of 500 ms, the system's folder for temporary files.
    pub fn new() -> Self {
        Self {
            settings: Settings {
                patience: Duration::from_secs(10),
                grace: Duration::from_millis(500),
                cwd: std::env::temp_dir(),
                leftovers: None,
            },
        }
    }

    /// The deadline of every wait in the suite. A start has half of it, and so has a teardown.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.settings.patience = patience;
        self
    }

    /// The grace that a cancelled child is given to return. Each check with a child that ignores a cancel takes it.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// The working directory of every delegation: absolute.
    pub fn cwd(mut self, cwd: impl AsRef<Path>) -> Self {
        self.settings.cwd = PathBuf::from(cwd.as_ref());
        self
    }

    /// Counts what is left of the provider's children (processes, connections, files); after each check it must come
    /// down to zero.
    ///
    /// ```
    /// # use subagents_testkit::{Contract, Probe};
    /// let probe = Probe::new();
    /// let contract = Contract::new().leftovers(move || probe.alive());
    /// # let _ = contract;
    /// ```
    pub fn leftovers(mut self, count: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        self.settings.leftovers = Some(Arc::new(count));
        self
    }

    /// Runs the suite.
    ///
    /// Dropping the future leaves the check that it was at to the service's own clean-up.
    pub async fn run<F, P>(&self, provider_for: F) -> Report
    where
        F: Fn(Scenario) -> Option<P>,
        P: Into<DynProvider>,
    {
        let mut rows = Vec::new();
        for &scenario in Scenario::ALL {
            let provider = provider_for(scenario).map(Into::into);
            for check in checks::of(scenario) {
                let outcome = match &provider {
                    None => Outcome::NotCovered,
                    Some(provider) => match self.hold(scenario, &check, provider).await {
                        Ok(()) => Outcome::Passed,
                        Err(message) => Outcome::Failed(message),
                    },
                };
                rows.push(Row { scenario, check: check.name, outcome });
            }
        }
        Report::new(rows)
    }

    async fn hold(
        &self,
        scenario: Scenario,
        check: &checks::Check,
        provider: &DynProvider,
    ) -> Result<(), String> {
        let stage = Stage::open(scenario, provider, &self.settings)?;
        let held = (check.run)(&stage).await;
        let clean = match &held {
            Ok(()) => stage.audit().await,
            Err(_) => Ok(()),
        };
        stage.end().await;
        held.and(clean)
    }
}

impl fmt::Debug for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contract")
            .field("patience", &self.settings.patience)
            .field("grace", &self.settings.grace)
            .field("cwd", &self.settings.cwd)
            .finish_non_exhaustive()
    }
}
