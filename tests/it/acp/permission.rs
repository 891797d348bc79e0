//! What an agent may do, and who decides.

use super::{
    Script,
    support::{Host, within},
};
use serde_json::json;
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use subagents::{
    Acp, CancelCause, Child, Deadlines, ResultError, RunContext, StartContext, StartError, StartRequest,
    StopReason, SubagentProvider, SubagentResult, SubagentService, WeakService,
    acp::{Decision, Permission, PermissionRequest},
};

const ALL: [(&str, &str); 3] = [("always", "allow_always"), ("once", "allow_once"), ("no", "reject_once")];

/// Asks with these options and tells what the outcome was.
fn asks(options: &[(&str, &str)]) -> Script {
    Script::prompted()
        .tool("t", "pending")
        .ask(json!(0), options)
        .tool("t", "failed")
        .chunk("outcome $outcome")
        .stop("end_turn")
}

async fn outcome(permission: Option<Permission>, options: &[(&str, &str)]) -> Arc<SubagentResult> {
    let acp = asks(options).acp();
    let host = Host::with(match permission {
        Some(permission) => acp.permission(permission),
        None => acp,
    });
    let result = host.delegate("x").await;
    assert_eq!(result.stop_reason, StopReason::Completed, "{result:?}");
    host.end().await;
    result
}

#[tokio::test]
async fn spec_18_3_the_policy_answers_and_the_agent_goes_on() {
    let reject = Permission::Reject;
    for (permission, options, wanted, denied) in [
        (None, &ALL[..], "'optionId':'no'", true),
        (Some(reject.clone()), &ALL[..2], "'outcome':'cancelled'", true),
        (Some(reject), &[], "'outcome':'cancelled'", true),
        (Some(Permission::Allow), &ALL[..], "'optionId':'once'", false),
        (Some(Permission::Allow), &ALL[..1], "'optionId':'always'", false),
        (Some(Permission::Allow), &[], "'outcome':'cancelled'", true),
    ] {
        let result = outcome(permission.clone(), options).await;
        assert!(result.text().contains(wanted), "{permission:?} {options:?}: {}", result.text());
        assert_eq!(!result.details.denied_calls.is_empty(), denied, "{permission:?} {options:?}");
    }
}

#[tokio::test]
async fn f02_a_refusal_is_in_the_result_of_an_agent_that_says_it_is_done() {
    let result = outcome(None, &ALL).await;
    let denied = &result.details.denied_calls;
    assert_eq!(denied.len(), 1);
    assert_eq!((&*denied[0].tool, &*denied[0].reason), ("execute", "the permission policy is `reject`"));
    // Also where it is cut short.
    let host = Host::of(&Script::prompted().ask(json!(0), &ALL).chunk("half").become_shell("sleep 1000"));
    let result =
        host.delegated(host.ask("x").deadlines(Deadlines::new().total(Duration::from_millis(700)))).await;
    assert_eq!(
        (&result.stop_reason, result.details.denied_calls.len()),
        (&StopReason::TimedOut, 1),
        "{result:?}"
    );
    host.end().await;
}

#[tokio::test]
async fn f02_a_turn_that_ends_with_a_refusal_says_so() {
    let host = Host::of(
        &Script::prompted()
            .ask(json!(0), &ALL)
            .say(json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "cancelled"}})),
    );
    let result = host.delegate("x").await;
    assert_eq!(result.stop_reason, StopReason::Aborted);
    let diagnostic = result.diagnostic.as_ref().expect("why");
    assert_eq!(diagnostic.category(), "permission-denied", "{diagnostic}");
    assert_eq!(result.details.denied_calls.len(), 1);
    host.end().await;
}

/// A child that delegates to an agent, as a parent of its own.
struct Middle(Mutex<Option<WeakService>>);

struct MiddleChild(Option<(StartContext, WeakService)>);

impl SubagentProvider for Arced {
    type Child = MiddleChild;
    async fn start(&self, cx: StartContext) -> Result<MiddleChild, StartError> {
        let service = self.0.0.lock().expect("no panic").clone().expect("it is set");
        Ok(MiddleChild(Some((cx, service))))
    }
}

struct Arced(Arc<Middle>);

impl Child for MiddleChild {
    async fn run(&mut self, _: RunContext) -> Result<SubagentResult, ResultError> {
        let (cx, service) = self.0.take().expect("once");
        let service = service.upgrade().expect("it is there");
        let request = StartRequest::new(cx.as_parent(), "x").label("below");
        let result = service.delegate("agent", request).await.expect("a clean delegation");
        Ok(SubagentResult::completed(result.text()))
    }
}

#[tokio::test]
async fn f01_an_agent_below_an_agent_is_answered_at_once_and_the_callback_learns_who_asks() {
    let asked: Arc<Mutex<Vec<PermissionRequest>>> = Arc::default();
    let listening = asked.clone();
    let permission = Permission::ask(move |request| {
        listening.lock().expect("no panic").push(request);
        async { Decision::Select("once".to_owned()) }
    });
    for (permission, wanted) in [(Permission::Reject, "'optionId':'no'"), (permission, "'optionId':'once'")] {
        let middle = Arc::new(Middle(Mutex::default()));
        let agent: Acp = asks(&ALL).acp().permission(permission);
        let service = SubagentService::builder()
            .provider("agent", agent)
            .provider("middle", Arced(middle.clone()))
            .build()
            .expect("a service");
        *middle.0.lock().expect("no panic") = Some(service.downgrade());
        let root = service.root(std::env::temp_dir()).expect("a root");
        let run = within("a start", service.start("middle", StartRequest::new(&root, "x")))
            .await
            .expect("it starts");
        let result = within("a result", run.result()).await.expect("a value");
        assert!(result.text().contains(wanted), "{}", result.text());
        if wanted.contains("once") {
            let asked = asked.lock().expect("no panic");
            let request = &asked[0];
            assert_eq!((request.depth(), request.lineage()), (2, &[run.id()][..]));
            assert_eq!(
                (&**request.provider(), request.label().map(|label| &**label)),
                ("agent", Some("below"))
            );
            assert_eq!(
                (request.tool(), request.kind(), request.title()),
                ("execute", "execute", Some("rm -rf /tmp/x"))
            );
            assert_eq!(request.options().len(), 3);
            // What it works on is nobody's business in a log.
            assert!(!format!("{request:?}").contains("rm -rf"), "{request:?}");
        }
        run.dispose().await.expect("nothing is left");
        assert!(within("the shutdown", service.shutdown(Duration::from_secs(10))).await.is_clean());
    }
}

fn at_once(_: PermissionRequest) -> std::future::Ready<Decision> {
    unreachable!("before there is a future")
}

#[tokio::test]
async fn a_callback_may_refuse_with_a_reason_or_panic_and_the_agent_goes_on() {
    let result =
        outcome(Some(Permission::ask(|_| async { Decision::reject("not on\u{1b}[31m a Monday") })), &ALL)
            .await;
    assert!(result.text().contains("'optionId':'no'"));
    assert_eq!(result.details.denied_calls[0].reason, "not on a Monday");
    let panics = Permission::ask(|_| async { panic!("a fault of the host's") });
    let result = outcome(Some(panics), &ALL).await;
    assert_eq!(result.details.denied_calls[0].reason, "the callback for permissions panicked");
    let result = outcome(Some(Permission::ask(at_once)), &ALL).await;
    assert!(result.details.denied_calls[0].reason.contains("panicked"));
}

#[tokio::test]
async fn what_waits_for_a_permission_is_seen_waiting_and_a_cancel_answers_it() {
    // As real agents do, it ends its turn when its question is answered, and not before.
    let script = Script::prompted()
        .chunk("up")
        .ask(json!("p"), &ALL)
        .chunk(", outcome $outcome")
        .say(json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "cancelled"}}));
    let host = Host::with(script.acp().permission(Permission::ask(|_| std::future::pending())));
    let run = host.start().await;
    let waits = || {
        let tree = host.service.tree();
        let node = tree.nodes.iter().find(|node| node.id == run.id().into()).expect("its node");
        node.wait.as_ref().map(ToString::to_string).unwrap_or_default()
    };
    within("a permission that is waited for", async {
        while !waits().contains("permission") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let begun = tokio::time::Instant::now();
    run.cancel(CancelCause::REQUESTED);
    let result = within("a result", run.result()).await.expect("a value");
    assert!(result.text().contains("'outcome':'cancelled'"), "{result:?}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    run.dispose().await.expect("nothing is left");
    host.end().await;
}

#[tokio::test]
async fn a_callback_ends_with_the_turn_that_asked_and_says_nothing_of_the_next() {
    // It ends its turn with its question open, and is asked again since what it said is no value.
    let question = json!({"jsonrpc": "2.0", "id": 100, "method": "session/request_permission", "params": {
        "sessionId": "the-session", "toolCall": {"toolCallId": "t", "kind": "edit"}, "options": []}});
    let script = Script::prompted()
        .say(question)
        .chunk("no value")
        .stop("end_turn")
        .expect("session/prompt")
        .chunk("{\"n\": 1}")
        .stop("end_turn");
    let (asked, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (asks, ends) = (asked.clone(), ended.clone());
    let permission = Permission::ask(move |_| {
        asks.fetch_add(1, SeqCst);
        let ends = OnDrop(ends.clone());
        async move {
            let _ends = ends;
            std::future::pending().await
        }
    });
    let host = Host::with(script.acp().permission(permission));
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let run = within("a start", host.service.start("agent", host.ask("x").output_schema(schema)))
        .await
        .expect("it starts");
    let result = within("a result", run.result()).await.expect("a value");
    assert_eq!(result.structured, Some(json!({"n": 1})), "{result:?}");
    assert_eq!((asked.load(SeqCst), ended.load(SeqCst)), (1, 1));
    assert_eq!(result.details.denied_calls, []);
    run.dispose().await.expect("nothing is left");
    host.end().await;
}

/// Counts that it was dropped.
struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[tokio::test]
async fn f02_an_option_of_a_kind_that_is_new_does_not_keep_the_policy_from_being_asked() {
    let result = outcome(None, &[("session", "allow_session"), ("no", "reject_once")]).await;
    assert!(result.text().contains("'optionId':'no'"), "{}", result.text());
    assert_eq!(result.details.denied_calls.len(), 1);
}

#[tokio::test]
async fn a_question_that_is_none_is_refused_and_too_many_at_once_are_too() {
    let script = Script::prompted()
        .request(json!(5), "session/request_permission", json!({"sessionId": "the-session"}))
        .chunk("outcome $outcome")
        .stop("end_turn");
    let host = Host::of(&script);
    let result = host.delegate("x").await;
    assert!(result.text().contains("-32602"), "{}", result.text());
    assert_eq!(result.details.denied_calls[0].reason, "its question could not be read");
    host.end().await;

    let question = |id: u64| {
        json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": {
            "sessionId": "the-session", "toolCall": {"toolCallId": "t", "kind": "edit"}, "options": []}})
    };
    let many = (100..164).fold(Script::prompted(), |script, id| script.say(question(id)));
    let script = many
        .say(question(200))
        .step(json!({"await": 200}))
        .chunk("outcome $outcome")
        .say(json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn"}}));
    let host = Host::with(script.acp().permission(Permission::ask(|_| std::future::pending())));
    let result = host.delegate("x").await;
    let reason = &result.details.denied_calls[0].reason;
    assert!(reason.starts_with("64 of its questions are open already"), "{reason}");
    host.end().await;
}
