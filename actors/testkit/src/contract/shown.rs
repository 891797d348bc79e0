//! What people see of a run: its label and where it is, and nothing of what it was asked.

use super::stage::{NAME, Stage, Verdict, ensure};
use subagents_seam::Phase;

pub(super) async fn in_the_tree(stage: &Stage) -> Verdict {
    let word = Stage::word();
    let run = stage.begin_with(stage.request(&word).label("seen")).await?;
    stage.beat().await;
    let tree = stage.service.tree();
    let Some(node) = tree.nodes.iter().find(|node| node.id == run.id().into()) else {
        return Err(format!("a running child is not in the tree:\n{tree}"));
    };
    ensure!(node.phase == Phase::Running, "a running child is shown as {}", node.phase);
    ensure!(node.label.as_deref() == Some("seen"), "the label is shown as {:?}", node.label);
    ensure!(node.provider.as_deref() == Some(NAME), "the provider is shown as {:?}", node.provider);
    let json = serde_json::to_string(&tree).map_err(|error| format!("the tree is no JSON: {error}"))?;
    ensure!(!json.contains(&word), "the tree shows the prompt:\n{tree}");
    stage.dispose(&run.watcher()).await?;
    let json = serde_json::to_string(&stage.service.tree()).unwrap_or_default();
    ensure!(!json.contains(&word), "the tree of what is gone shows the prompt");
    Ok(())
}
