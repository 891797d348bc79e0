//! What is wrong with a configuration, and where.

use std::{error::Error, fmt, path::Path, sync::Arc};
use subagents_seam::sanitised;

/// As many faults are told, and how many more there are.
const MOST: usize = 20;

/// Where something stands in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigPlace {
    /// In a file. Lines, and characters of a line, count from 1.
    Line {
        /// The file.
        file: Arc<Path>,
        /// The line.
        line: usize,
        /// The character of that line.
        column: usize,
    },
    /// A file as a whole.
    File(Arc<Path>),
    /// A variable of the environment.
    Variable(Arc<str>),
    /// The configuration as a whole.
    Whole,
}

impl fmt::Display for ConfigPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |file: &Path| sanitised(&file.to_string_lossy());
        match self {
            Self::Line { file, line, column } => write!(f, "{}:{line}:{column}", shown(file)),
            Self::File(file) => f.write_str(&shown(file)),
            Self::Variable(name) => f.write_str(&sanitised(name)),
            Self::Whole => f.write_str("the configuration"),
        }
    }
}

/// The kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigFaultKind {
    /// The file is not there, cannot be read, or is no text.
    Unreadable,
    /// The file is no TOML.
    Syntax,
    /// A key that is not known here.
    UnknownKey,
    /// A key that has to be there and is not.
    MissingKey,
    /// A value of the wrong type, or one that makes no sense.
    InvalidValue,
    /// No provider has the name that was asked for.
    UnknownProvider,
    /// None was asked for, and there is not exactly one to take.
    NoProvider,
}

impl ConfigFaultKind {
    /// A stable name for programs to match on.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unreadable => "CONFIG_UNREADABLE",
            Self::Syntax => "CONFIG_SYNTAX",
            Self::UnknownKey => "CONFIG_UNKNOWN_KEY",
            Self::MissingKey => "CONFIG_MISSING_KEY",
            Self::InvalidValue => "CONFIG_INVALID_VALUE",
            Self::UnknownProvider => "CONFIG_UNKNOWN_PROVIDER",
            Self::NoProvider => "CONFIG_NO_PROVIDER",
        }
    }
}

/// One thing that is wrong, where it stands, and what would be right. Values of `env` are never in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigFault {
    /// Of which kind it is.
    pub kind: ConfigFaultKind,
    /// Where it stands.
    pub place: ConfigPlace,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place != ConfigPlace::Whole {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.message)
    }
}

/// Why there is no configuration: every fault that was found, in the order in which they stand. `Display` has a line
/// for each.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    first: ConfigFault,
    more: Vec<ConfigFault>,
}

impl ConfigError {
    pub(super) fn new(kind: ConfigFaultKind, place: ConfigPlace, message: impl Into<String>) -> Self {
        Self { first: ConfigFault { kind, place, message: message.into() }, more: Vec::new() }
    }

    pub(super) fn unreadable(file: &Path, why: impl fmt::Display) -> Self {
        Self::new(ConfigFaultKind::Unreadable, ConfigPlace::File(file.into()), why.to_string())
    }

    /// The stable code of the first fault.
    pub fn code(&self) -> &'static str {
        self.first.kind.code()
    }

    /// The faults, one at least.
    pub fn faults(&self) -> impl Iterator<Item = &ConfigFault> {
        std::iter::once(&self.first).chain(&self.more)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        for fault in self.more.iter().take(MOST - 1) {
            write!(f, "\n{fault}")?;
        }
        match self.more.len().saturating_sub(MOST - 1) {
            0 => Ok(()),
            left => write!(f, "\n… and {left} more"),
        }
    }
}

// What a `main` prints that returns it: the messages, as for people.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for ConfigError {}

/// Faults as they are found.
#[derive(Default)]
pub(super) struct Faults(Vec<ConfigFault>);

impl Faults {
    pub(super) fn push(&mut self, kind: ConfigFaultKind, place: &ConfigPlace, message: impl Into<String>) {
        // Names and paths of a file are in it: one line, which steers no terminal.
        let message = sanitised(&message.into()).replace(['\n', '\t'], " ");
        self.0.push(ConfigFault { kind, place: place.clone(), message });
    }

    /// Those of a file in the order of its lines, then the others as they were found.
    pub(super) fn into_result(mut self) -> Result<(), ConfigError> {
        self.0.sort_by_key(|fault| match fault.place {
            ConfigPlace::Line { line, column, .. } => (line, column),
            ConfigPlace::File(_) | ConfigPlace::Variable(_) | ConfigPlace::Whole => (usize::MAX, 0),
        });
        let mut faults = self.0.into_iter();
        match faults.next() {
            Some(first) => Err(ConfigError { first, more: faults.collect() }),
            None => Ok(()),
        }
    }
}
