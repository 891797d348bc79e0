//! The ways of a child that the contract looks at.

use crate::Script;
use std::fmt;
use subagents_seam::FailureCode;

/// What the provider under test has to be built to do.
///
/// For a provider that runs a program, the words in brackets are a shell script that does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scenario {
    /// The child completes soon, with an answer that contains `ok`. An echo of the prompt is best (`cat`): the prompt
    /// holds a word `ok-…` of its own, and an answer with another one is found out.
    Answers,
    /// The child fails soon, with a stop reason other than success (`echo why >&2; exit 3`).
    Fails,
    /// The child fails soon, after megabytes of noise on the side: on stderr, in its error message; with control
    /// characters in it (`yes "$(printf '\033[31mred\007')" | head -c 5000000 >&2; exit 1`).
    NoisyFailure,
    /// The child completes soon without an answer (`true`).
    Blank,
    /// The child shows megabytes of text as fast as it can, and completes (`yes | head -c 5000000`).
    Floods,
    /// The child runs until it is cancelled (`sleep 1000`).
    Hangs,
    /// The child runs for ever and takes no notice of a cancel (`trap '' TERM INT; while :; do sleep 1; done`).
    IgnoresCancel,
    /// The start does not end before it is cancelled.
    HangsInStart,
    /// The start fails soon.
    FailsInStart,
    /// Code of the provider panics in `run`.
    Panics,
    /// Code of the provider panics in `start`.
    PanicsInStart,
}

impl Scenario {
    /// Every scenario, in the order in which they are run.
    pub const ALL: &'static [Self] = &[
        Self::Answers,
        Self::Fails,
        Self::NoisyFailure,
        Self::Blank,
        Self::Floods,
        Self::Hangs,
        Self::IgnoresCancel,
        Self::HangsInStart,
        Self::FailsInStart,
        Self::Panics,
        Self::PanicsInStart,
    ];

    /// The name, in kebab case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answers => "answers",
            Self::Fails => "fails",
            Self::NoisyFailure => "noisy-failure",
            Self::Blank => "blank",
            Self::Floods => "floods",
            Self::Hangs => "hangs",
            Self::IgnoresCancel => "ignores-cancel",
            Self::HangsInStart => "hangs-in-start",
            Self::FailsInStart => "fails-in-start",
            Self::Panics => "panics",
            Self::PanicsInStart => "panics-in-start",
        }
    }

    /// What the provider has to be built to do, in a sentence.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Answers => {
                "the child completes soon with an answer that contains `ok`, best an echo of its prompt"
            }
            Self::Fails => "the child fails soon",
            Self::NoisyFailure => {
                "the child fails soon, after megabytes of noise with control characters in it"
            }
            Self::Blank => "the child completes soon without an answer",
            Self::Floods => "the child shows megabytes of text as fast as it can, and completes",
            Self::Hangs => "the child runs until it is cancelled",
            Self::IgnoresCancel => "the child runs for ever and takes no notice of a cancel",
            Self::HangsInStart => "the start does not end before it is cancelled",
            Self::FailsInStart => "the start fails soon",
            Self::Panics => "the provider's code panics in `run`",
            Self::PanicsInStart => "the provider's code panics in `start`",
        }
    }

    /// The scenario as a script: what the suite itself is tested with.
    pub fn script(self) -> Script {
        match self {
            Self::Answers => Script::echo(),
            Self::Fails => Script::fail("scripted", "it was told to fail"),
            Self::NoisyFailure => Script::fail("scripted", &"\u{1b}[31mnoise\u{7}\r\n".repeat(100_000)),
            Self::Blank => Script::answer(" \n"),
            Self::Floods => Script::answer("ok").flood(5_000_000, 1000),
            Self::Hangs => Script::hang().say("half of it"),
            Self::IgnoresCancel => Script::hang().say("half of it").deaf(),
            Self::HangsInStart => Script::echo().start_hangs(),
            Self::FailsInStart => {
                Script::echo().start_fails(FailureCode::ProviderFailed, "it was told to fail to start")
            }
            Self::Panics => Script::panic("it was told to panic"),
            Self::PanicsInStart => Script::echo().start_panics("it was told to panic in its start"),
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
