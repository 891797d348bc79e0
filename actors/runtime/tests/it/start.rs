//! Before a child exists: the checks in their order, and what is left of a start that fails: nothing.

use crate::support::{Obedient, Probe, quiet, service, service_with, until};
use serde_json::json;
use std::time::Duration;
use subagents_runtime::SubagentService;
use subagents_seam::{
    AgentOption, AgentOptions, CancelCause, CancellationToken, Capabilities, Capability, ContentBlock,
    Deadlines, Event, Parent, Phase, PromptKind, StartRequest, StopReason, ToolFilter,
};

#[tokio::test]
async fn spec_3_1_the_checks_come_in_the_fixed_order_and_touch_nothing() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.max_depth(0));
    let mut events = service.events();
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let (other, other_root) = service_with(&probe, |builder| builder);
    let everything = |parent: &Parent| {
        StartRequest::new(
            parent,
            vec![ContentBlock::Image { mime_type: "image/png".into(), data: "".into() }],
        )
        .output_schema(json!({"type": "array"}))
        .max_depth(-1_i64)
        .tool_filter(ToolFilter::deny(["x"]))
        .persona("p")
        .agent_options(AgentOptions::new().model("m"))
        .token(cancelled.clone())
    };
    // Each step repairs exactly what the one before complained of.
    let all = Capabilities::NONE;
    let steps: [(Capabilities, &str, Option<&str>); 9] = [
        (all, "UNSUPPORTED_CAPABILITY", Some("outputSchema")),
        (all.with_output_schema(), "UNSUPPORTED_CAPABILITY", Some("depthLimit")),
        (all.with_output_schema().with_depth_limit(), "UNSUPPORTED_CAPABILITY", Some("toolFilter")),
        (
            all.with_output_schema().with_depth_limit().with_tool_filter(),
            "UNSUPPORTED_CAPABILITY",
            Some("persona"),
        ),
        (full(), "UNSUPPORTED_CAPABILITY", Some("agentOptions.model")),
        (full().with_agent_option(AgentOption::Model), "INVALID_DEPTH", None),
        (full().with_agent_option(AgentOption::Model), "UNSUPPORTED_SCHEMA", None),
        (full().with_agent_option(AgentOption::Model), "UNSUPPORTED_PROMPT", None),
        (full().with_agent_option(AgentOption::Model).with_prompt(PromptKind::Image), "CANCELLED", None),
    ];
    assert_eq!(service.start("nobody", everything(root.parent())).await.unwrap_err().code(), "NO_PROVIDER");
    for (i, (capabilities, code, feature)) in steps.into_iter().enumerate() {
        let name = format!("p{i}");
        let provider = Obedient { capabilities, ..Obedient::new(&probe) };
        let _registration = service.register(&name, provider).unwrap();
        let mut request = everything(root.parent());
        if i > 5 {
            request = request.max_depth(7);
        }
        if i > 6 {
            request = request.output_schema(json!({"type": "object"}));
        }
        let error = service.start(&name, request).await.unwrap_err();
        assert_eq!(error.code(), code, "step {i}: {error}");
        assert!(feature.is_none_or(|feature| error.to_string().contains(feature)), "step {i}: {error}");
    }
    // Then the parent, then the depth, then the total of starts.
    let foreign = service.start("it", StartRequest::new(&other_root, "x")).await.unwrap_err();
    assert_eq!(foreign.code(), "PARENT_GONE");
    let deep = service.start("it", StartRequest::new(&root, "x")).await.unwrap_err();
    assert_eq!(deep.code(), "DEPTH_EXCEEDED");
    let (capped, capped_root) = service_with(&probe, |builder| builder.max_starts(0));
    let refused = capped.start("it", StartRequest::new(&capped_root, "x")).await.unwrap_err();
    assert_eq!(refused.code(), "START_LIMIT_EXCEEDED");
    assert_eq!(probe.starts(), 0, "no provider was asked");
    while let Some(event) = events.try_next() {
        assert!(!matches!(event, Ok(Event::Started(_) | Event::Ended(_))), "no lifecycle event: {event:?}");
    }
    drop((other, capped));
}

fn full() -> Capabilities {
    Capabilities::NONE.with_output_schema().with_depth_limit().with_tool_filter().with_persona()
}

#[tokio::test]
async fn a11_spec_1_2_what_a_provider_cannot_do_is_refused_by_name_before_any_start() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    for capability in
        [Capability::OutputSchema, Capability::DepthLimit, Capability::ToolFilter, Capability::Persona]
    {
        let ask = |request: StartRequest| match capability {
            Capability::OutputSchema => request.output_schema(json!({"type": "object"})),
            Capability::DepthLimit => request.max_depth(3),
            Capability::ToolFilter => request.tool_filter(ToolFilter::allow(["read"])),
            _ => request.persona(""),
        };
        let error = service.start("it", ask(StartRequest::new(&root, "hi"))).await.unwrap_err();
        assert_eq!(error.code(), "UNSUPPORTED_CAPABILITY");
        assert!(error.to_string().contains(capability.as_str()), "{error}");
        let provider =
            Obedient { capabilities: Capabilities::NONE.with(capability), ..Obedient::new(&probe) };
        let registration = service.register("able", provider).unwrap();
        let result = service.delegate("able", ask(StartRequest::new(&root, "hi value"))).await.unwrap();
        assert_eq!(result.stop_reason, StopReason::Completed, "{capability}");
        drop(registration);
    }
    assert_eq!(probe.starts(), 4, "only the able one was asked");
}

#[tokio::test]
async fn spec_3_2_an_unsupported_schema_lists_all_its_violations() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let provider = Obedient { capabilities: full(), ..Obedient::new(&probe) };
    let _registration = service.register("able", provider).unwrap();
    let schema =
        json!({"type": "object", "anyOf": [], "properties": {"a": {"type": "string", "pattern": "x"}}});
    let error = service.start("able", StartRequest::new(&root, "x").output_schema(schema)).await.unwrap_err();
    assert_eq!(error.code(), "UNSUPPORTED_SCHEMA");
    for place in ["/anyOf", "/properties/a/pattern"] {
        assert!(error.to_string().contains(place), "{error}");
    }
    assert_eq!(probe.starts(), 0);
}

#[tokio::test]
async fn spec_1_4_a_blank_prompt_is_refused_and_the_token_is_optional() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let error = service.start("it", StartRequest::new(&root, " \n ")).await.unwrap_err();
    assert_eq!(error.code(), "UNSUPPORTED_PROMPT");
    let request = StartRequest::new(&root, "hello").label("greeting");
    assert_eq!(service.delegate("it", request).await.unwrap().text(), "hello");
}

#[tokio::test(start_paused = true)]
async fn spec_3_3_a_rejected_start_leaves_nothing_and_has_no_lifecycle_event() {
    let probe = Probe::default();
    let (service, root) =
        service_with(&probe, |b| b.deadlines(Deadlines::new().start(Duration::from_secs(5))));
    let mut events = service.events();
    for (prompt, code) in [
        ("start-err", "PROVIDER_FAILED"),
        ("start-panic", "PROVIDER_PANICKED"),
        ("start-hang", "START_TIMEOUT"),
        ("start-deaf", "START_TIMEOUT"),
    ] {
        let error = service.start("it", StartRequest::new(&root, prompt)).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert_eq!(probe.alive(), 0, "{prompt}");
        assert!(
            service.tree().nodes.iter().all(|node| node.provider.is_none()),
            "{prompt}: it is gone by the time of the answer"
        );
    }
    let mut gone = 0;
    while let Some(Ok(event)) = events.try_next() {
        assert!(!matches!(event, Event::Started(_) | Event::Ended(_)), "{event:?}");
        gone += usize::from(matches!(event, Event::NodeGone { .. }));
    }
    assert_eq!(gone, 4, "each was in the tree and left it");
    let codes: Vec<_> =
        service.tree().gone.iter().filter_map(|node| node.error().map(str::to_owned)).collect();
    assert_eq!(
        codes.iter().map(|c| &**c).collect::<Vec<_>>(),
        ["PROVIDER_FAILED", "PROVIDER_PANICKED", "START_TIMEOUT", "START_TIMEOUT"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_child_that_comes_late_out_of_a_cut_start_is_closed() {
    let probe = Probe::default();
    let deadlines = Deadlines::new().start(Duration::from_millis(500));
    let (service, root) = service_with(&probe, |builder| builder.deadlines(deadlines));
    let error = service.start("it", StartRequest::new(&root, "start-late")).await.unwrap_err();
    assert_eq!(error.code(), "START_TIMEOUT");
    assert_eq!((probe.runs(), probe.closes(), probe.alive()), (0, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_start_cancelled_before_publication_is_rejected_with_its_cause() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let starting = service.start("it", StartRequest::new(&root, "start-hang"));
    let id = starting.id();
    until("it starts", || probe.starts() == 1).await;
    assert_eq!(service.tree().node(id).map(|node| node.phase), Some(Phase::Starting));
    starting.cancel(CancelCause::requested("changed my mind"));
    let error = starting.await.unwrap_err();
    assert_eq!(error.code(), "CANCELLED");
    assert!(error.to_string().contains("changed my mind"), "{error}");
    let token = CancellationToken::new();
    let starting = service.start("it", StartRequest::new(&root, "start-deaf").token(token.clone()));
    until("it starts", || probe.starts() == 2).await;
    token.cancel();
    assert_eq!(starting.await.unwrap_err().code(), "CANCELLED");
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn spec_3_4_concurrent_starts_share_nothing() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let hangs = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
    let fails = service.start("it", StartRequest::new(&root, "start-err"));
    let panics = service.start("it", StartRequest::new(&root, "panic")).await.unwrap();
    let works = service.start("it", StartRequest::new(&root, "sleep:100 fine")).await.unwrap();
    assert_eq!(fails.await.unwrap_err().code(), "PROVIDER_FAILED");
    assert_eq!(panics.result().await.unwrap().stop_reason, StopReason::Error);
    hangs.cancel(CancelCause::REQUESTED);
    assert_eq!(hangs.result().await.unwrap().stop_reason, StopReason::Aborted);
    assert_eq!(works.result().await.unwrap().text(), "fine");
    for run in [hangs, panics, works] {
        run.dispose().await.unwrap();
    }
    assert_eq!(probe.alive(), 0);
}

#[tokio::test]
async fn spec_2_1_providers_coexist_in_order_of_registration_and_a_name_is_taken_once() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let first = service.register("zeta", Obedient::new(&probe)).unwrap();
    let second = service.register("alpha", Obedient::new(&probe)).unwrap();
    let names = |service: &SubagentService| {
        service.providers().iter().map(|name| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&service), ["it", "zeta", "alpha"]);
    assert_eq!(service.register("zeta", Obedient::new(&probe)).unwrap_err().code(), "DUPLICATE_PROVIDER");
    assert!(service.provider("nobody").is_none());
    // A late drop of an old registration never removes a newer one of the same name.
    let service2 = service.clone();
    drop(first);
    assert_eq!(names(&service), ["it", "alpha"]);
    let newer = service2.register("zeta", Obedient::new(&probe)).unwrap();
    assert_eq!(names(&service), ["it", "alpha", "zeta"]);
    drop(second);
    assert_eq!(service.delegate("zeta", StartRequest::new(&root, "hi")).await.unwrap().text(), "hi");
    drop(newer);
    let error = service.start("zeta", StartRequest::new(&root, "hi")).await.unwrap_err();
    assert!(error.to_string().contains("known: it"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn spec_2_3_removing_a_provider_leaves_its_runs_alone() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut events = service.events();
    let registration = service.register("brief", Obedient::new(&probe)).unwrap();
    let run = service.start("brief", StartRequest::new(&root, "sleep:100 survived")).await.unwrap();
    drop(registration);
    assert_eq!(
        service.start("brief", StartRequest::new(&root, "x")).await.unwrap_err().code(),
        "NO_PROVIDER"
    );
    assert_eq!(run.result().await.unwrap().text(), "survived");
    run.dispose().await.unwrap();
    let mut seen = Vec::new();
    while let Some(Ok(event)) = events.try_next() {
        match event {
            Event::ProviderAdded { name } => seen.push(format!("+{name}")),
            Event::ProviderRemoved { name } => seen.push(format!("-{name}")),
            _ => {}
        }
    }
    assert_eq!(seen, ["+brief", "-brief"]);
}

#[tokio::test]
async fn spec_1_3_the_description_of_a_provider_implies_nothing() {
    let provider: subagents_seam::DynProvider = Obedient::new(&Probe::default()).into();
    assert!(!provider.inherits_parent_context());
    assert_eq!(provider.capabilities(), Capabilities::NONE);
    assert!(!provider.allows_blank_answer());
}

#[tokio::test]
async fn building_tells_what_is_wrong() {
    let probe = Probe::default();
    let it = || Obedient::new(&probe);
    let build = |builder: subagents_runtime::ServiceBuilder| builder.build().map(|_| ()).unwrap_err().code();
    assert_eq!(
        build(SubagentService::builder().provider("a", it()).provider("a", it())),
        "DUPLICATE_PROVIDER"
    );
    assert_eq!(build(SubagentService::builder().provider("A b", it())), "INVALID_NAME");
    assert_eq!(build(SubagentService::builder().provider("a", it()).limit("b", 1)), "NO_PROVIDER");
    assert_eq!(build(SubagentService::builder().provider("a", it()).limit("a", 0)), "ZERO_LIMIT");
    let (service, _root) = service(&probe);
    for cwd in ["relative", "/does/not/exist", "/etc/passwd"] {
        assert_eq!(service.root(cwd).unwrap_err().code(), "CWD_NOT_USABLE", "{cwd}");
    }
}

#[test]
fn m07_a_service_outside_a_runtime_is_an_error_not_a_panic() {
    let error = SubagentService::builder().build().map(|_| ()).unwrap_err();
    assert_eq!(error.code(), "NO_RUNTIME");
}

#[tokio::test]
async fn m01_a_failed_start_poisons_no_name() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    for _ in 0..20 {
        let error =
            service.start("it", StartRequest::new(&root, "start-err").label("same")).await.unwrap_err();
        assert_eq!(error.code(), "PROVIDER_FAILED");
        assert!(std::error::Error::source(&error).is_some(), "the error underneath is kept");
        assert_eq!(
            service.delegate("it", StartRequest::new(&root, "ok").label("same")).await.unwrap().text(),
            "ok"
        );
    }
    quiet(&service, &probe).await;
    assert_eq!(service.tree().nodes.len(), 2, "the service and its root");
}

#[tokio::test]
async fn m12_a_provider_that_always_dies_is_twenty_failures_and_no_loop() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let (mut bad, mut good) = (0, 0);
    for _ in 0..20 {
        let (dead, fine) = tokio::join!(
            service.start("it", StartRequest::new(&root, "start-panic").label("bad")),
            service.delegate("it", StartRequest::new(&root, "fine")),
        );
        bad += usize::from(dead.is_err_and(|error| error.code() == "PROVIDER_PANICKED"));
        good += usize::from(fine.is_ok_and(|result| result.text() == "fine"));
    }
    assert_eq!((bad, good), (20, 20));
    assert_eq!(probe.starts(), 40, "nothing was started again by itself");
    let tree = service.tree();
    assert_eq!(tree.gone.iter().filter(|node| node.error() == Some("PROVIDER_PANICKED")).count(), 20);
}

#[tokio::test]
async fn spec_1_9_every_error_has_its_code_and_names_the_next_step() {
    use subagents_seam::{FailureCode, ProviderFailure, StartError};
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let _ = service.shutdown(Duration::from_secs(1)).await;
    assert_eq!(service.start("it", StartRequest::new(&root, "x")).await.unwrap_err().code(), "DRAINING");
    assert_eq!(service.root("/").unwrap_err().code(), "DRAINING");
    let name = || subagents_seam::Name::from("x");
    let after = Duration::from_secs(1);
    let schema = subagents_seam::schema::check(&json!({"type": "array"})).unwrap_err();
    // The code, and a word of what to do next.
    for (error, code, advice) in [
        (StartError::Draining, "DRAINING", "start nothing more"),
        (StartError::ServiceFailed, "SERVICE_FAILED", "build a new one"),
        (StartError::NoProvider { name: name(), known: vec![name()] }, "NO_PROVIDER", "known: x"),
        (StartError::unsupported(&name(), Capability::Persona), "UNSUPPORTED_CAPABILITY", "leave it out"),
        (StartError::InvalidDepth { given: "-1".into() }, "INVALID_DEPTH", "give a whole number"),
        (StartError::UnsupportedSchema(schema), "UNSUPPORTED_SCHEMA", "must be an object"),
        (
            StartError::UnsupportedPrompt { provider: name(), kind: "blank" },
            "UNSUPPORTED_PROMPT",
            "say what is to be done",
        ),
        (
            StartError::UnsupportedPrompt { provider: name(), kind: "image" },
            "UNSUPPORTED_PROMPT",
            "send text",
        ),
        (StartError::Cancelled { cause: CancelCause::Shutdown }, "CANCELLED", "shuts down"),
        (StartError::DepthExceeded { attempted: 4, max: 3 }, "DEPTH_EXCEEDED", "do the work here"),
        (StartError::QueueFull { queued: 1, active: 2 }, "QUEUE_FULL", "retry when"),
        (StartError::QueueTimeout { after }, "QUEUE_TIMEOUT", "raise the limit"),
        (
            StartError::StartTimeout { provider: name(), after, reason: None },
            "START_TIMEOUT",
            "in 1s; see whether it hangs, or raise the start deadline",
        ),
        (
            StartError::StartTimeout { provider: name(), after, reason: Some("it said nothing".into()) },
            "START_TIMEOUT",
            "in 1s: it said nothing; see",
        ),
        (StartError::ParentGone, "PARENT_GONE", "delegate from a live one"),
        (StartError::StartLimitExceeded { cap: 7 }, "START_LIMIT_EXCEEDED", "go on without"),
        (StartError::NoParentHistory, "NO_PARENT_HISTORY", "starts fresh"),
        (ProviderFailure::new(FailureCode::NotOnPath, "install it").into(), "NOT_ON_PATH", "install it"),
        (
            StartError::ProviderPanicked { provider: name(), message: "m".into() },
            "PROVIDER_PANICKED",
            "panicked",
        ),
    ] {
        assert_eq!(error.code(), code);
        assert!(error.to_string().contains(advice), "{code}: {error}");
        assert!(
            !error.to_string().ends_with('.') && !error.to_string().starts_with(char::is_uppercase),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_provider_that_holds_a_registration_can_be_dropped() {
    struct Owner(
        #[expect(dead_code, reason = "held, to be dropped with it")] subagents_runtime::Registration,
    );
    impl subagents_seam::SubagentProvider for Owner {
        type Child = crate::support::ObedientChild;
        async fn start(
            &self,
            _: subagents_seam::StartContext,
        ) -> Result<Self::Child, subagents_seam::StartError> {
            Err(subagents_seam::StartError::NoParentHistory)
        }
    }
    let probe = Probe::default();
    let (service, _root) = service(&probe);
    let inner = service.register("inner", Obedient::new(&probe)).unwrap();
    let outer = service.register("outer", Owner(inner)).unwrap();
    let dropped = tokio::task::spawn_blocking(move || drop(outer));
    tokio::time::timeout(Duration::from_secs(5), dropped).await.expect("no deadlock").unwrap();
    assert_eq!(service.providers().iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["it"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_is_told_after_what_it_had_delegated_is_gone() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    struct Hasty(subagents_runtime::WeakService);
    impl subagents_seam::SubagentProvider for Hasty {
        type Child = crate::support::ObedientChild;
        async fn start(
            &self,
            cx: subagents_seam::StartContext,
        ) -> Result<Self::Child, subagents_seam::StartError> {
            let service = self.0.upgrade().unwrap();
            let run = service.start("it", StartRequest::new(cx.as_parent(), "close-slow hang")).await?;
            drop(run.detach());
            Err(subagents_seam::StartError::NoParentHistory)
        }
    }
    let _hasty = service.register("hasty", Hasty(service.downgrade())).unwrap();
    let error = service.start("hasty", StartRequest::new(&root, "x")).await.unwrap_err();
    assert_eq!(error.code(), "NO_PARENT_HISTORY");
    assert_eq!(probe.alive(), 0);
    quiet(&service, &probe).await;
}
