//! Which checks hold in which scenario.

use super::{
    Scenario, before, cancel, deadlines, drops, settled, shown, siblings,
    stage::{Stage, Verdict},
};
use std::pin::Pin;

/// One check. The name says what must hold.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) run: for<'a> fn(&'a Stage) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>,
}

macro_rules! checks {
    ($($name:literal => $run:path),* $(,)?) => {
        vec![$(Check { name: $name, run: |stage| Box::pin($run(stage)) }),*]
    };
}

pub(super) fn of(scenario: Scenario) -> Vec<Check> {
    match scenario {
        Scenario::Answers => ends_by_itself(checks![
            "what the provider cannot do is refused before its start" => before::unsupported_is_refused,
            "a token that is cancelled refuses the start" => before::cancelled_token_refuses,
            "a start that is cancelled at once leaves nothing" => before::cancelled_at_once,
            "a start that is dropped at once leaves nothing" => before::dropped_at_once,
            "delegate gives the answer" => settled::delegates,
            "a cancel after the end changes nothing" => settled::late_cancel,
            "a detached run goes on and goes by itself" => drops::detached,
            "concurrent starts answer each for itself" => siblings::answer_for_themselves,
            "a cancelled and an abandoned neighbour change nothing" => siblings::unruly_neighbours,
        ]),
        Scenario::Fails | Scenario::NoisyFailure => ends_by_itself(checks![
            "a second child fails like the first" => settled::settles_as_it_should,
        ]),
        Scenario::Blank => ends_by_itself(Vec::new()),
        Scenario::Panics => ends_by_itself(checks![
            "a second child panics like the first" => settled::settles_as_it_should,
        ]),
        Scenario::Floods => ends_by_itself(checks![
            "a cancel in the flood is heard" => cancel::in_a_flood,
            "a reader of the flood comes to its end" => settled::progress_ends,
        ]),
        Scenario::Hangs => runs_on(checks![
            "the first cause of a cancel stays" => cancel::first_cause,
            "the token of the request cancels" => cancel::by_token,
            "a dropped root cancels what is below it" => drops::root,
            "a dropped service cancels everything" => drops::service,
            "a dropped watcher or future changes nothing" => drops::watcher_and_futures,
            "a cancelled run leaves its neighbour alone" => siblings::cancelled_apart,
        ]),
        Scenario::IgnoresCancel => runs_on(Vec::new()),
        Scenario::HangsInStart => checks![
            "a cancelled start is rejected with its cause" => before::cancel_in_start,
            "the token of the request cancels the start" => before::token_in_start,
            "an abandoned start leaves nothing" => before::abandoned,
            "a start takes no longer than its deadline" => before::start_deadline,
            "a cancelled start leaves its neighbour alone" => before::neighbour_starts_on,
            "a shutdown rejects the start" => before::shutdown_in_start,
        ],
        Scenario::FailsInStart => checks![
            "the start is rejected and leaves nothing" => before::start_fails,
            "its message is bounded and clean" => before::start_message_is_fit,
        ],
        Scenario::PanicsInStart => checks![
            "the panic rejects the start and leaves nothing" => before::start_panics,
            "its message is bounded and clean" => before::start_message_is_fit,
        ],
    }
}

/// What holds for every child that ends by itself.
fn ends_by_itself(more: Vec<Check>) -> Vec<Check> {
    let mut all = checks![
        "the run settles as it should" => settled::settles_as_it_should,
        "it settles once, for every waiter" => settled::settles_once,
        "a failure has a bounded, clean diagnostic" => settled::diagnostic_is_fit,
        "disposed means gone, for every disposer" => settled::disposed_is_gone,
        "a waiter after the disposal gets the same result" => settled::late_waiter,
    ];
    all.extend(more);
    all
}

/// What holds for every child that has to be ended.
fn runs_on(more: Vec<Check>) -> Vec<Check> {
    let mut all = checks![
        "a cancel at once settles it as aborted, with the cause" => cancel::at_once,
        "a cancel mid-way settles it as aborted, with the cause" => cancel::mid_way,
        "it settles once, for every waiter" => cancel::settles_once,
        "a disposal ends it, for every disposer" => cancel::disposed,
        "a dropped handle cancels" => drops::handle,
        "the total deadline ends it as timed out" => deadlines::total,
        "the tree shows it, and nothing of its prompt" => shown::in_the_tree,
        "a shutdown ends it" => cancel::shutdown,
    ];
    all.extend(more);
    all
}
