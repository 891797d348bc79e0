//! What the end of a turn, or of a connection, is to a caller. Pure.

use subagents_process::Exit;
use subagents_seam::{Diagnostic, StopReason};

use crate::connection::Broken;

/// What is known of a turn that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turned<'a> {
    pub(crate) program: &'a str,
    /// The agent's own stop reason, fit to be shown.
    pub(crate) stop: &'a str,
    /// Whether we cancelled it.
    pub(crate) cancelled: bool,
    /// Whether a permission was refused in it.
    pub(crate) denied: bool,
    /// Whether the agent told beside the protocol that its model failed.
    pub(crate) failed: bool,
    /// Its last message, fit to be shown.
    pub(crate) said: &'a str,
}

/// Our stop reason, and what went wrong (`SPEC 18.4`).
pub(crate) fn of_turn(turn: Turned<'_>) -> (StopReason, Option<Diagnostic>) {
    let because = |category: &'static str, what: &str| {
        Some(Diagnostic::new(category, &format!("{} {what}", turn.program)))
    };
    match turn.stop {
        _ if turn.cancelled => (StopReason::Aborted, None),
        "end_turn" if turn.failed => {
            let said = turn.said;
            let what =
                format!("ended its turn as if nothing had happened, but its model failed; it said: {said}");
            (StopReason::Error, because("model-error", &what))
        }
        "end_turn" => (StopReason::Completed, None),
        "max_tokens" => (StopReason::MaxTokens, None),
        "refusal" => (StopReason::Refusal, None),
        "cancelled" if turn.denied => {
            let what = "ended its turn when a permission was denied; the details say which";
            (StopReason::Aborted, because("permission-denied", what))
        }
        "cancelled" => (
            StopReason::Aborted,
            because("agent-cancelled", "says that its turn was cancelled, which nobody asked for"),
        ),
        "max_turn_requests" => {
            let what = "made as many model requests as it may in one turn; split the task";
            (StopReason::Error, because("max-turn-requests", what))
        }
        other => {
            let what = format!("ended its turn for a reason that is not known here, `{other}`");
            (StopReason::Error, because("unknown-stop-reason", &what))
        }
    }
}

/// Why a turn ended with its connection; `words` are what the agent said last.
pub(crate) fn of_break(program: &str, broken: &Broken, exit: Option<Exit>, words: &str) -> Diagnostic {
    let effects = "what it has done until then may have had effects";
    let (category, what) = match (broken, exit) {
        (Broken::Ended, Some(exit)) => {
            ("exited", format!("{program} ended with {exit} before its turn ended; {effects}"))
        }
        (Broken::Ended, None) => (
            "transport-closed",
            format!("{program} closed its stdout before its turn ended, and is still running; {effects}"),
        ),
        (Broken::Deaf, _) => {
            ("transport-closed", format!("{program} closed its stdin before it had read all; {effects}"))
        }
        (Broken::TooMuch { limit }, _) => (
            "output-limit",
            format!(
                "{program} wrote more than {limit} bytes in all; raise max_total_output, or see what it does"
            ),
        ),
        (Broken::Repeats { times }, _) => (
            "output-limit",
            format!(
                "{program} said the same {times} times in a row, as one does that asks its model again and again"
            ),
        ),
        (Broken::Garbage | Broken::LineTooLong { .. } | Broken::NotReading | Broken::Unreadable(_), _) => {
            ("protocol-error", format!("{program} {broken}; {effects}"))
        }
    };
    Diagnostic::new(category, &format!("{what}; {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(stop: &str) -> Turned<'_> {
        Turned { program: "x", stop, cancelled: false, denied: false, failed: false, said: "We are busy" }
    }

    #[test]
    fn spec_18_4_each_stop_reason_becomes_one_of_ours() {
        for (told, reason, category) in [
            (turn("end_turn"), StopReason::Completed, None),
            (turn("max_tokens"), StopReason::MaxTokens, None),
            (turn("refusal"), StopReason::Refusal, None),
            (turn("cancelled"), StopReason::Aborted, Some("agent-cancelled")),
            (turn("max_turn_requests"), StopReason::Error, Some("max-turn-requests")),
            (turn("new"), StopReason::Error, Some("unknown-stop-reason")),
            (turn(""), StopReason::Error, Some("unknown-stop-reason")),
            (Turned { denied: true, ..turn("cancelled") }, StopReason::Aborted, Some("permission-denied")),
            (Turned { denied: true, ..turn("end_turn") }, StopReason::Completed, None),
            (Turned { failed: true, ..turn("end_turn") }, StopReason::Error, Some("model-error")),
            // Whatever it says after a cancel of ours.
            (Turned { cancelled: true, ..turn("end_turn") }, StopReason::Aborted, None),
            (Turned { cancelled: true, failed: true, ..turn("refusal") }, StopReason::Aborted, None),
        ] {
            let (became, diagnostic) = of_turn(told);
            assert_eq!(
                (became, diagnostic.as_ref().map(Diagnostic::category)),
                (reason, category),
                "{told:?}"
            );
        }
    }

    #[test]
    fn d02_no_end_of_a_connection_is_a_success() {
        for (broken, exit, category, part) in [
            (Broken::Ended, Some(Exit::Code(0)), "exited", "exit code 0 before its turn ended"),
            (Broken::Ended, None, "transport-closed", "still running"),
            (Broken::Deaf, None, "transport-closed", "closed its stdin"),
            (Broken::TooMuch { limit: 9 }, None, "output-limit", "raise max_total_output"),
            (Broken::Repeats { times: 9 }, None, "output-limit", "9 times in a row"),
            (Broken::Garbage, None, "protocol-error", "no message"),
            (Broken::NotReading, None, "protocol-error", "did not read"),
        ] {
            let diagnostic = of_break("x", &broken, exit, "no stderr");
            assert_eq!(diagnostic.category(), category);
            assert!(
                diagnostic.text().contains(part) && diagnostic.text().ends_with("no stderr"),
                "{diagnostic}"
            );
        }
    }
}
