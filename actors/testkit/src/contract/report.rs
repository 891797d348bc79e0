//! What came of the suite.

use super::Scenario;
use std::fmt;

/// What came of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It held.
    Passed,
    /// It did not hold; in few words, why.
    Failed(String),
    /// There was no provider for its scenario.
    NotCovered,
}

/// One check in one scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// The scenario.
    pub scenario: Scenario,
    /// The check: what must hold.
    pub check: &'static str,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of the suite, check by check. `Display` prints a table of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a report that nobody reads asserts nothing; call `assert`"]
pub struct Report {
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new(rows: Vec<Row>) -> Self {
        Self { rows }
    }

    /// Every check, scenario by scenario.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The checks that did not hold.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| matches!(row.outcome, Outcome::Failed(_)))
    }

    /// The scenarios without a provider.
    pub fn not_covered(&self) -> impl Iterator<Item = Scenario> {
        Scenario::ALL.iter().copied().filter(|scenario| {
            self.rows.iter().any(|row| row.scenario == *scenario && row.outcome == Outcome::NotCovered)
        })
    }

    /// Panics with the table if a check did not hold. A scenario that is not covered is no failure.
    ///
    /// # Panics
    /// Where [`failures`](Self::failures) gives any: this is an assertion, for tests.
    #[track_caller]
    pub fn assert(&self) {
        let failed = self.failures().count();
        assert!(failed == 0, "the provider breaks its contract in {failed} checks\n{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.check.chars().count()).max().unwrap_or(0);
        let (mut passed, mut failed, mut bare) = (0, 0, None);
        for row in &self.rows {
            match &row.outcome {
                Outcome::Passed => {
                    passed += 1;
                    writeln!(f, "{:<15} {:<width$}  passed", row.scenario, row.check)?;
                }
                Outcome::Failed(message) => {
                    failed += 1;
                    writeln!(f, "{:<15} {:<width$}  FAILED: {message}", row.scenario, row.check)?;
                }
                // One line says it for all checks of a scenario.
                Outcome::NotCovered if bare != Some(row.scenario) => {
                    bare = Some(row.scenario);
                    writeln!(f, "{:<15} not covered: {}", row.scenario, row.scenario.description())?;
                }
                Outcome::NotCovered => {}
            }
        }
        let bare = self.not_covered().count();
        write!(f, "{passed} checks passed, {failed} failed; {bare} scenarios not covered")
    }
}
