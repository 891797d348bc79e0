//! The life of one run as a pure state machine. The actor, its driver and the registry feed it facts; it says what
//! follows. No I/O, no clock, no lock: whoever calls [`step`] holds the run's lock, and that makes each fact
//! count once.

use subagents_seam::Phase;

/// What is known of a run, in a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(u8);

const PHASE: u8 = 0b0000_0111;
/// `Started` went out: exactly one `Ended` is owed.
const PUBLISHED: u8 = 0b0000_1000;
/// The outcome is fixed: a result, or for an unpublished run its rejection.
const SETTLED: u8 = 0b0001_0000;
/// The driver task is gone, and the child with it.
const DRIVER_DONE: u8 = 0b0010_0000;
/// The run actor is gone.
const ACTOR_DONE: u8 = 0b0100_0000;
/// No run below is left, and none can come.
const CHILDLESS: u8 = 0b1000_0000;

/// A fact about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A slot is free, or none is needed.
    Admitted,
    /// The provider has a child ready.
    Published,
    /// The outcome is known.
    Settled,
    /// The driver task ended; whether a run below is left then.
    DriverDone { childless: bool },
    /// The run actor ended.
    ActorDone,
    /// The last run below is gone, and none can come.
    Childless,
}

/// What follows from a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing: the fact came too late, or twice.
    Nothing,
    /// Only the record changed.
    Changed,
    /// `Started` goes out.
    Started,
    /// `Ended` goes out, then the waiters are released.
    Ended,
    /// A start is rejected; no lifecycle event.
    Rejected,
    /// Nothing of it is left: its slot is free, whoever awaits its disposal is answered.
    Gone,
}

impl State {
    pub(crate) const QUEUED: Self = Self(0);

    pub(crate) const fn phase(self) -> Phase {
        match self.0 & PHASE {
            0 => Phase::Queued,
            1 => Phase::Starting,
            2 => Phase::Running,
            3 => Phase::Closing,
            _ => Phase::Gone,
        }
    }

    pub(crate) const fn is_published(self) -> bool {
        self.0 & PUBLISHED != 0
    }

    pub(crate) const fn is_settled(self) -> bool {
        self.0 & SETTLED != 0
    }

    pub(crate) const fn is_driver_done(self) -> bool {
        self.0 & DRIVER_DONE != 0
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    const fn at(self, phase: Phase) -> Self {
        Self((self.0 & !PHASE) | phase as u8)
    }

    const fn with(self, flag: u8) -> Self {
        Self(self.0 | flag)
    }

    const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// What a run becomes by a fact.
///
/// Settlement is a separate fact, set once; by itself it moves the run to `Closing`. `Gone` needs four: settled,
/// the driver gone, the actor gone, no run below, in whatever order the last three come.
pub(crate) const fn step(state: State, input: Input) -> (State, Effect) {
    match input {
        Input::Admitted if matches!(state.phase(), Phase::Queued) => {
            (state.at(Phase::Starting), Effect::Changed)
        }
        // From `Queued` as well: a start that is ready at once was never seen starting.
        Input::Published if matches!(state.phase(), Phase::Queued | Phase::Starting) => {
            (state.at(Phase::Running).with(PUBLISHED), Effect::Started)
        }
        Input::Admitted | Input::Published => (state, Effect::Nothing),
        Input::Settled => {
            if state.is_settled() {
                return (state, Effect::Nothing);
            }
            let effect = if state.is_published() { Effect::Ended } else { Effect::Rejected };
            (state.at(Phase::Closing).with(SETTLED), effect)
        }
        Input::DriverDone { childless } => {
            let flags = if childless { DRIVER_DONE | CHILDLESS } else { DRIVER_DONE };
            all_gone(state.with(flags), state.with(flags).0 == state.0)
        }
        Input::ActorDone => all_gone(state.with(ACTOR_DONE), state.has(ACTOR_DONE)),
        Input::Childless => all_gone(state.with(CHILDLESS), state.has(CHILDLESS)),
    }
}

const fn all_gone(state: State, repeated: bool) -> (State, Effect) {
    let gone = state.has(DRIVER_DONE) && state.has(ACTOR_DONE) && state.has(CHILDLESS) && state.is_settled();
    if matches!(state.phase(), Phase::Gone) || (repeated && !gone) {
        (state, Effect::Nothing)
    } else if gone {
        (state.at(Phase::Gone), Effect::Gone)
    } else {
        (state, Effect::Changed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Effect, Input, State, step};
    use proptest::prelude::*;
    use subagents_seam::Phase;

    fn any_input() -> impl Strategy<Value = Input> {
        prop_oneof![
            Just(Input::Admitted),
            Just(Input::Published),
            Just(Input::Settled),
            Just(Input::DriverDone { childless: true }),
            Just(Input::DriverDone { childless: false }),
            Just(Input::ActorDone),
            Just(Input::Childless),
        ]
    }

    proptest! {
        #[test]
        fn any_order_of_facts_settles_once_and_ends_once(inputs in prop::collection::vec(any_input(), 0..40)) {
            let mut state = State::QUEUED;
            let (mut started, mut ended, mut rejected, mut gone) = (0, 0, 0, 0);
            for input in inputs.into_iter().chain([Input::Settled, Input::DriverDone { childless: false }, Input::ActorDone, Input::Childless]) {
                let before = state.phase();
                let (next, effect) = step(state, input);
                prop_assert!(next.phase() >= before, "a phase never goes back: {before:?} -> {:?}", next.phase());
                match effect {
                    Effect::Started => { started += 1; prop_assert_eq!(ended + rejected, 0); }
                    Effect::Ended => { ended += 1; prop_assert_eq!(started, 1); }
                    Effect::Rejected => { rejected += 1; prop_assert_eq!(started, 0); }
                    Effect::Gone => { gone += 1; prop_assert!(next.is_settled()); }
                    Effect::Changed => {}
                    Effect::Nothing => prop_assert_eq!(next.phase(), before),
                }
                state = next;
            }
            prop_assert_eq!(ended, started, "each Started has exactly one Ended");
            prop_assert_eq!(ended + rejected, 1, "it settles exactly once");
            prop_assert_eq!(gone, 1);
            prop_assert_eq!(state.phase(), Phase::Gone);
        }
    }
}
