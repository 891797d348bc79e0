//! How deep it may go.

use crate::support::{asked, within};
use futures_util::future::join_all;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use subagents_runtime::SubagentService;
use subagents_seam::{Capabilities, SubagentResult, ToolContext, provider_fn};
use subagents_tool::{SubagentTool, ToolDepth, Toolbox};

/// Everybody delegates five more, whatever comes of it. How many children there were, and what the refused were told.
async fn everybody_delegates(
    capabilities: Capabilities,
    tool: SubagentTool,
    cap: Option<u32>,
) -> (usize, Vec<String>) {
    let toolbox: Arc<OnceLock<Toolbox>> = Arc::default();
    let (count, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Mutex::new(Vec::new())));
    let (tools, counts, refusals) = (toolbox.clone(), count.clone(), refused.clone());
    let greedy = provider_fn(capabilities, move |start, _run| {
        let (tools, counts, refusals) = (tools.clone(), counts.clone(), refusals.clone());
        async move {
            counts.fetch_add(1, SeqCst);
            // SPEC 5.4: it stays visible at the cap.
            let tool = tools.get().expect("it is set").tool("subagent").expect("it is here");
            let calls = (0..5).map(|_| {
                let cx = ToolContext::new(start.as_parent(), start.as_parent().token().child_token());
                tool.call(cx, asked("delegate"))
            });
            for result in join_all(calls).await {
                if let Err(error) = result {
                    refusals.lock().unwrap().push(error.to_string());
                }
            }
            Ok(SubagentResult::completed("done"))
        }
    });
    let mut service = SubagentService::builder().provider("p", greedy);
    if let Some(cap) = cap {
        service = service.max_depth(cap);
    }
    let service = service.build().unwrap();
    toolbox.set(Toolbox::new(&service, [tool]).unwrap()).unwrap();
    let root = service.root(std::env::temp_dir()).unwrap();
    let cx = ToolContext::new(&root, root.parent().token().child_token());
    let _ = within(toolbox.get().unwrap().tool("subagent").unwrap().call(cx, asked("delegate"))).await;
    assert!(within(service.shutdown(Duration::from_secs(10))).await.is_clean());
    let refused = refused.lock().unwrap().clone();
    (count.load(SeqCst), refused)
}

#[tokio::test]
async fn e01_spec_5_4_a_tree_in_which_everybody_delegates_ends_at_its_cap() {
    let limits = Capabilities::NONE.with_depth_limit();
    let at = |depth| SubagentTool::new("subagent", "p").max_depth(ToolDepth::AtMost(depth));
    for (depth, children) in [(0, 0), (1, 1), (2, 1 + 5), (3, 1 + 5 + 25)] {
        let (count, refused) = everybody_delegates(limits, at(depth), None).await;
        assert_eq!(count, children, "a cap of {depth}");
        let leaves = 5_usize.pow(depth);
        assert_eq!(refused.len(), if depth == 0 { 0 } else { leaves });
        for error in refused {
            assert!(error.contains(&format!("depth {} is over the limit of {depth}", depth + 1)), "{error}");
        }
    }
}

#[tokio::test]
async fn spec_5_5_the_default_is_three_where_the_provider_can_keep_to_it() {
    let tool = || SubagentTool::new("subagent", "p");
    let limits = Capabilities::NONE.with_depth_limit();
    assert_eq!(everybody_delegates(limits, tool(), None).await.0, 31);
    // Of one that cannot, no cap goes with the request; that of the service holds.
    assert_eq!(everybody_delegates(Capabilities::NONE, tool(), Some(2)).await.0, 6);
    let managed = tool().max_depth(ToolDepth::ProviderManaged);
    assert_eq!(everybody_delegates(limits, managed, Some(4)).await.0, 156);
}
