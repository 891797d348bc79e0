use super::{NewRun, RunCore};
use crate::{
    SubagentService,
    run::{Effect, Input},
    seat::Place,
    settlement::{Ending, Settled, Wanted},
};
use std::{fmt, sync::Arc};
use subagents_seam::{CancelCause, ResultError, SubagentResult};

/// A cause of a failure that looks at its own run, and panics, when it is dropped.
struct Nosy(Arc<RunCore>);

impl Drop for Nosy {
    fn drop(&mut self) {
        assert!(self.0.told_state().is_settled(), "which takes the lock");
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("a destructor of foreign code"));
        }
    }
}

impl fmt::Debug for Nosy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nosy")
    }
}

impl fmt::Display for Nosy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nosy")
    }
}

impl std::error::Error for Nosy {}

#[tokio::test]
async fn an_outcome_that_comes_too_late_is_dropped_without_the_lock() {
    let service = SubagentService::builder().build().unwrap();
    let root = service.root("/").unwrap();
    let shared = service.shared();
    let parent = Place::of(root.parent(), shared).unwrap();
    parent.take_seat(None, 1).unwrap();
    let new = NewRun {
        parent,
        max_depth: None,
        provider: "it".into(),
        label: None,
        bounds: None,
        wanted: Wanted::Text,
    };
    let core = Arc::new(RunCore::new(shared.clone(), shared.mint(), new));
    assert!(core.publish(false));
    core.settle(Ending::Returned(Ok(Arc::new(SubagentResult::completed("first")))));
    let nosy = Arc::new(Nosy(core.clone()));
    let mut late: Option<Settled> =
        Some(Err(ResultError::WaitFailed { message: "late".into(), source: Some(nosy) }));
    let (effect, locked) = core.feed(Input::Settled, &mut late);
    drop(locked);
    assert_eq!(effect, Effect::Nothing);
    assert!(late.is_some(), "it is the caller's to drop");
    drop(crate::race::Contained::new(late));
    assert_eq!(core.outcome().unwrap().unwrap().text(), "first");
    core.cancel(CancelCause::REQUESTED);
}
