//! What a run's end is worth: from how the child ended to the one result that everybody gets. Pure.

use crate::race::Contained;
use std::sync::Arc;
use subagents_seam::{
    CancelCause, Content, Details, Diagnostic, ResultError, StopReason, SubagentResult, Usage,
};

/// The outcome of a published run, as every waiter gets it.
pub(crate) type Settled = Result<Arc<SubagentResult>, ResultError>;

/// What a child that has completed must have answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Text with something in it.
    Text,
    /// Text, and be it blank: its provider allows that.
    AnyText,
    /// A value for the output schema that was asked for.
    Value,
}

/// How the child's `run` ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It returned.
    Returned(Result<Arc<SubagentResult>, ResultError>),
    /// It panicked, with this message.
    Panicked(String),
    /// It was dropped: the grace after a cancel ran out, or a deadline passed.
    Cut,
    /// Whoever ran it was lost.
    Lost,
}

/// What the run had shown of itself before it ended.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// The text of the answer so far.
    pub(crate) text: String,
    pub(crate) usage: Option<Usage>,
    /// `truncated` is about that text.
    pub(crate) details: Details,
}

/// The result of a run that ended so.
///
/// The own record of a cancel outranks the child's word: whatever a cancelled child returns, the run is `aborted`, or
/// `timed-out` where a deadline was the cause (SPEC 17.4). A completed child without the answer that was wanted
/// is an error.
pub(crate) fn conclude(
    ending: Ending,
    cause: Option<&CancelCause>,
    wanted: Wanted,
    shown: Option<Shown>,
) -> Settled {
    // Judged where it will stay: nobody else has it yet.
    let mut settled = match (ending, cause) {
        (Ending::Returned(Ok(result)), _) => result,
        (Ending::Returned(Err(error)), None) => return Err(error),
        (Ending::Panicked(message), None) => {
            let diagnostic = Diagnostic::new("panic", &format!("the child panicked: {message}"));
            Arc::new(SubagentResult::error(diagnostic))
        }
        (Ending::Cut | Ending::Lost, None) => {
            let text = "what ran the child was lost; start it again";
            Arc::new(SubagentResult::error(Diagnostic::fixed("owner-lost", text)))
        }
        (overruled, Some(_)) => {
            // A child's error is foreign, and so is its destructor.
            drop(Contained::new(overruled));
            Arc::new(SubagentResult::aborted(Content::EMPTY))
        }
    };
    if let Some(result) = Arc::get_mut(&mut settled) {
        match cause {
            None => judge(result, wanted),
            Some(cause) => cancel(result, cause),
        }
        if let Some(shown) = shown {
            complete(result, shown);
        }
    }
    Ok(settled)
}

fn judge(result: &mut SubagentResult, wanted: Wanted) {
    if result.stop_reason.is_success() {
        if wanted == Wanted::Value && result.structured.is_none() {
            // Its words are no value, whoever lets them pass as one (SPEC 8.7).
            result.stop_reason = StopReason::Error;
            let text = "the child ended without the value that the output schema asks for";
            result.diagnostic = Some(Diagnostic::fixed("schema-not-met", text));
        } else if wanted == Wanted::Text && result.structured.is_none() && result.output.is_blank() {
            result.output = Content::EMPTY;
            result.stop_reason = StopReason::Error;
            result.diagnostic = Some(Diagnostic::fixed(EMPTY, "the child ended without an answer"));
        } else {
            result.diagnostic = None;
        }
    } else if result.diagnostic.is_none() {
        let (category, text) = match &result.stop_reason {
            StopReason::MaxTokens => ("max-tokens", "the child hit its token limit before finishing"),
            StopReason::Refusal => ("refusal", "the child declined the task"),
            StopReason::Aborted => ("cancelled", "the child says that it was cancelled"),
            StopReason::TimedOut => ("timed-out", "the child says that it ran out of time"),
            StopReason::Completed | StopReason::Error | StopReason::Other(_) | _ => {
                ("unknown", "the child gave no reason")
            }
        };
        result.diagnostic = Some(Diagnostic::fixed(category, text));
    }
}

fn cancel(result: &mut SubagentResult, cause: &CancelCause) {
    let (stop_reason, category) = if let CancelCause::Deadline(_) = cause {
        (StopReason::TimedOut, "timed-out")
    } else if *cause == CancelCause::OwnerLost {
        (StopReason::Error, "owner-lost")
    } else {
        (StopReason::Aborted, "cancelled")
    };
    result.stop_reason = stop_reason;
    result.diagnostic = Some(cause.diagnostic(category));
}

/// Adds what the run had shown where the result does not say it itself.
fn complete(result: &mut SubagentResult, shown: Shown) {
    let (said, seen) = (&mut result.details, shown.details);
    if !result.stop_reason.is_success() && result.output.is_blank() && !shown.text.is_empty() {
        result.output = Content::from(shown.text);
        said.truncated = said.truncated.or(seen.truncated);
    }
    if result.usage.is_none() {
        result.usage = shown.usage.map(Box::new);
    }
    said.messages = said.messages.or(seen.messages);
    said.tool_calls = said.tool_calls.or(seen.tool_calls);
    said.thoughts = said.thoughts.or(seen.thoughts);
    said.plans = said.plans.or(seen.plans);
    if said.schema_attempts.is_empty() {
        said.schema_attempts = seen.schema_attempts;
    }
    if said.denied_calls.is_empty() {
        said.denied_calls = seen.denied_calls;
        said.denied_total = said.denied_total.or(seen.denied_total);
    }
    let empty = result.diagnostic.as_ref().is_some_and(|diagnostic| diagnostic.category() == EMPTY);
    if empty && !result.details.denied_calls.is_empty() {
        let text = "the child ended without an answer, after tool calls of its had been denied; allow what it needs, or ask \
                    for what it can do without";
        result.diagnostic = Some(Diagnostic::fixed(EMPTY, text));
    }
}

/// The category of a success that has nothing to say.
const EMPTY: &str = "empty-answer";

#[cfg(test)]
mod tests {
    use super::{Ending, Shown, Wanted, conclude};
    use std::sync::Arc;
    use subagents_seam::{
        CancelCause, DeadlineKind, DeniedCall, Details, Diagnostic, ResultError, StopReason, SubagentResult,
    };

    fn shown(text: &str) -> Shown {
        Shown { text: text.to_owned(), ..Shown::default() }
    }

    #[test]
    fn b14_empty_success_is_an_error_with_the_partial_text() {
        for (answer, preamble, partial) in
            [("", "", ""), (" \n\t", "", ""), ("", "I will look", "I will look")]
        {
            let ending = Ending::Returned(Ok(Arc::new(SubagentResult::completed(answer))));
            let result = conclude(ending, None, Wanted::Text, Some(shown(preamble))).expect("a value");
            assert_eq!(result.stop_reason, StopReason::Error);
            assert_eq!(result.diagnostic.as_ref().map(Diagnostic::category), Some("empty-answer"));
            assert_eq!(result.text(), partial);
        }
        let mut denied = shown("");
        denied.details.denied_calls.push(DeniedCall::new("bash", "no"));
        let ending = Ending::Returned(Ok(Arc::new(SubagentResult::completed(""))));
        let result = conclude(ending, None, Wanted::Text, Some(denied)).expect("a value");
        assert!(
            result.diagnostic.as_ref().is_some_and(|why| why.text().contains("had been denied")),
            "{result:?}"
        );
        let allowed = conclude(
            Ending::Returned(Ok(Arc::new(SubagentResult::completed("")))),
            None,
            Wanted::AnyText,
            Some(shown("")),
        )
        .expect("a value");
        assert_eq!(allowed.stop_reason, StopReason::Completed);
    }

    #[test]
    fn spec_8_7_a_clean_end_without_the_value_is_an_error_and_the_words_are_partial() {
        let end = |result| conclude(Ending::Returned(Ok(Arc::new(result))), None, Wanted::Value, None);
        for words in ["the value is 3", "{\"n\": 3}", ""] {
            let result = end(SubagentResult::completed(words)).expect("a value");
            assert_eq!((&result.stop_reason, result.text().as_str()), (&StopReason::Error, words));
            assert_eq!(result.diagnostic.as_ref().map(Diagnostic::category), Some("schema-not-met"));
        }
        let value = SubagentResult::completed("").with_structured(serde_json::json!({"n": 3}));
        let result = end(value).expect("a value");
        assert!(result.stop_reason.is_success() && result.structured.is_some());
        let cut = end(SubagentResult::new(StopReason::MaxTokens, "{\"n\":")).expect("a value");
        assert_eq!(cut.diagnostic.as_ref().map(Diagnostic::category), Some("max-tokens"));
    }

    #[test]
    fn spec_17_4_the_own_record_of_a_cancel_outranks_the_childs_word() {
        let cause = CancelCause::REQUESTED;
        for ending in [
            Ending::Returned(Ok(Arc::new(SubagentResult::completed("done")))),
            Ending::Returned(Ok(Arc::new(SubagentResult::error(Diagnostic::new("x", "y"))))),
            Ending::Returned(Err(ResultError::wait_failed("gone"))),
            Ending::Panicked("boom".into()),
            Ending::Cut,
        ] {
            let label = format!("{ending:?}");
            let result = conclude(ending, Some(&cause), Wanted::Text, Some(shown("half"))).expect("a value");
            assert_eq!(result.stop_reason, StopReason::Aborted, "{label}");
            assert!(!result.text().is_empty(), "{label}");
        }
        let late = conclude(
            Ending::Cut,
            Some(&CancelCause::Deadline(DeadlineKind::Idle)),
            Wanted::Text,
            Some(shown("half")),
        )
        .expect("a value");
        assert_eq!((&late.stop_reason, late.text().as_str()), (&StopReason::TimedOut, "half"));
    }

    #[test]
    fn the_destructor_of_an_overruled_error_may_panic() {
        #[derive(Debug)]
        struct Nosy;
        impl std::fmt::Display for Nosy {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("nosy")
            }
        }
        impl std::error::Error for Nosy {}
        impl Drop for Nosy {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new("a destructor of foreign code"));
            }
        }
        let error = ResultError::WaitFailed { message: "late".into(), source: Some(Arc::new(Nosy)) };
        let settled =
            conclude(Ending::Returned(Err(error)), Some(&CancelCause::REQUESTED), Wanted::Text, None);
        assert_eq!(settled.expect("a value").stop_reason, StopReason::Aborted);
    }

    #[test]
    fn a_success_has_no_diagnostic_and_every_failure_has_one() {
        let chatty = SubagentResult::completed("ok").with_diagnostic(Diagnostic::new("x", "y"));
        assert!(
            conclude(Ending::Returned(Ok(Arc::new(chatty))), None, Wanted::Text, Some(shown("")))
                .expect("a value")
                .diagnostic
                .is_none()
        );
        for reason in ["error", "max-tokens", "refusal", "aborted", "timed-out", "paused-for-tea"] {
            let ending = Ending::Returned(Ok(Arc::new(SubagentResult::new(reason.into(), ""))));
            let result = conclude(ending, None, Wanted::Text, Some(shown(""))).expect("a value");
            assert!(result.diagnostic.is_some() && !result.stop_reason.is_success(), "{reason}");
        }
    }

    #[test]
    fn f02_what_was_seen_completes_what_the_result_says_and_overrules_none_of_it() {
        let mut seen = Details::default();
        (seen.tool_calls, seen.thoughts, seen.plans) = (Some(3), Some(2), Some(1));
        seen.denied_calls = vec![DeniedCall::new("bash", "the policy says no")];
        let seen = || Some(Shown { details: seen.clone(), ..Shown::default() });
        let done = || SubagentResult::completed("done");
        for (ending, cause) in [
            (Ending::Returned(Ok(Arc::new(done()))), None),
            (Ending::Panicked("boom".into()), None),
            (Ending::Cut, Some(CancelCause::Deadline(DeadlineKind::Total))),
        ] {
            let result = conclude(ending, cause.as_ref(), Wanted::Text, seen()).expect("a value");
            assert_eq!(Some(&result.details), seen().as_ref().map(|shown| &shown.details), "{cause:?}");
        }
        let mut own = Details::default();
        (own.tool_calls, own.thoughts, own.plans) = (Some(0), Some(7), Some(8));
        own.denied_calls = vec![DeniedCall::new("edit", "a person said no")];
        let ending = Ending::Returned(Ok(Arc::new(done().with_details(own.clone()))));
        assert_eq!(conclude(ending, None, Wanted::Text, seen()).expect("a value").details, own);
    }

    #[test]
    fn m06_a_failed_wait_is_the_only_err() {
        let error = conclude(
            Ending::Returned(Err(ResultError::wait_failed("lost"))),
            None,
            Wanted::Text,
            Some(shown("")),
        )
        .expect_err("an error");
        assert_eq!(error.code(), "WAIT_FAILED");
        assert_eq!(
            conclude(Ending::Lost, None, Wanted::Text, Some(shown(""))).expect("a value").stop_reason,
            StopReason::Error
        );
    }
}
