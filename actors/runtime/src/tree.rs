//! From the records to the nodes that people see. Looking reads the index and never goes through an actor.

use crate::{
    clock::Clock,
    core::{Glance, RunCore},
    events::Item,
    index::AHEAD,
    progress::{Live, Process},
    run::State,
    seat::RootCore,
    shared::{Shared, Standing},
};
use std::{
    array,
    collections::HashSet,
    sync::{Arc, atomic::Ordering::Acquire},
};
use subagents_seam::{Node, NodeEnd, NodeId, NodeKind, Phase, StopReason, Tree, Wait};

pub(crate) fn snapshot(shared: &Shared) -> Tree {
    let now = shared.clock.now();
    let mut nodes = Vec::with_capacity(1 + shared.roots.len() + shared.live());
    nodes.push(service_node(shared));
    nodes.extend(shared.roots.iter().map(|root| root_node(&root, root.revision.load(Acquire))));
    let mut queued = false;
    let pushed = shared.kept.pushed();
    // Gone, and perhaps not among the gone ones yet.
    let mut leaving = Vec::new();
    shared.runs.for_some(|some| {
        let glances: [_; AHEAD] = array::from_fn(|n| some.get(n)?.as_deref().map(RunCore::glance));
        for (core, glance) in some.iter().zip(glances) {
            let (Some(core), Some(glance)) = (core, glance) else { continue };
            // One without a revision is on its way in and was announced to nobody.
            if glance.revision == 0 {
                continue;
            }
            let phase = glance.state.phase();
            if phase == Phase::Gone {
                leaving.push(core.clone());
                continue;
            }
            queued |= phase == Phase::Queued;
            nodes.push(blank_node(core));
            if let Some(node) = nodes.last_mut() {
                fill(node, core, &glance, &shared.clock);
                node.end = end(core, glance.state);
            }
            if let Some(process) = core.live().and_then(Live::process) {
                nodes.push(process_node(core, &process));
            }
        }
    });
    let now = shared.clock.stamp(now);
    // One that is out of the index by now is remembered, or forgotten already.
    leaving.retain(|core: &Arc<RunCore>| !core.is_taken_out());
    let (mut gone, forgotten) = shared.kept.nodes(now);
    let since = (forgotten + gone.len() as u64).saturating_sub(pushed);
    if since > 0 {
        // These went while the copy was made: each is in one part of it.
        let since = usize::try_from(since).unwrap_or(usize::MAX).min(gone.len());
        let went: HashSet<NodeId> = gone[gone.len() - since..].iter().map(|node| node.id).collect();
        nodes.retain(|node| {
            let process_of = node.parent.filter(|_| node.kind == NodeKind::Process);
            !went.contains(&node.id) && !process_of.is_some_and(|run| went.contains(&run))
        });
    }
    for core in leaving {
        let id = NodeId::from(core.id());
        if !gone.iter().any(|node| node.id == id) {
            gone.push(run_node(&core));
        }
    }
    Tree::new(now, nodes, gone, forgotten, queued)
}

fn service_node(shared: &Shared) -> Node {
    let mut node = Node::new(shared.id, None, NodeKind::Service);
    node.created = shared.clock.stamp(shared.created);
    node.since = node.created;
    node.phase = match shared.standing() {
        Standing::Open => Phase::Running,
        Standing::Draining => Phase::Closing,
        Standing::Closed | Standing::Failed => Phase::Gone,
    };
    node
}

pub(crate) fn root_node(root: &RootCore, revision: u64) -> Node {
    let mut node = Node::new(root.id, Some(root.shared.id), NodeKind::Parent);
    node.agent = Some(root.seat.agent);
    node.depth = root.seat.depth;
    node.label = Some(root.label.clone());
    node.created = root.shared.clock.stamp(root.created);
    node.since = node.created;
    node.revision = revision;
    node
}

pub(crate) fn run_node(core: &RunCore) -> Node {
    run_node_of(core, &core.glance(), &core.shared.clock)
}

/// The record of a run as of one state of it.
pub(crate) fn run_node_of(core: &RunCore, glance: &Glance, clock: &Clock) -> Node {
    let mut node = blank_node(core);
    fill(&mut node, core, glance, clock);
    node.end = end(core, glance.state);
    node
}

/// How a run ended, if it has in this state.
pub(crate) fn end(core: &RunCore, state: State) -> Option<Box<NodeEnd>> {
    if !state.is_settled() {
        return None;
    }
    // An error of the wait is told as `error`.
    let stop_reason =
        state.is_published().then(|| core.result().map_or(StopReason::Error, |it| it.stop_reason.clone()));
    let leaked = if state.phase() == Phase::Gone { core.leak().cloned() } else { None };
    NodeEnd::new(stop_reason, core.rejection().map(Into::into), leaked)
}

/// To be [filled](fill).
pub(crate) fn blank_node(core: &RunCore) -> Node {
    Node::new(core.id().into(), Some(core.above()), NodeKind::Run)
}

/// Makes a blank node the record of a run, but for its end. In place: a node is large, and a tree has many.
pub(crate) fn fill(node: &mut Node, core: &RunCore, glance: &Glance, clock: &Clock) {
    let Glance { state, revision, since, created, last_sign, labelled, borrowed, depth } = *glance;
    let phase = state.phase();
    node.depth = depth;
    // Not the whole option at once: that copies it in pieces that the processor cannot put together in time.
    if labelled && let Some(label) = &core.label {
        node.label = Some(label.clone());
    }
    node.provider = Some(core.provider.clone());
    node.agent = Some(core.seat.agent);
    node.phase = phase;
    node.since = clock.stamp(since);
    node.created = clock.stamp(created);
    node.revision = revision;
    node.last_progress = last_sign.map(|at| clock.stamp(at));
    let live = core.live();
    node.usage = live.and_then(Live::usage);
    let mut wait_since = node.since;
    node.wait = match phase {
        Phase::Queued => core.ticket().map(Wait::Slot),
        Phase::Starting => Some(Wait::Start),
        Phase::Closing => Some(Wait::Close),
        Phase::Running => Some(match live.and_then(Live::wait) {
            Some((wait, at)) => {
                wait_since = clock.stamp(at);
                wait
            }
            None => Wait::Child,
        }),
        Phase::Gone | _ => None,
    };
    node.wait_since = node.wait.is_some().then_some(wait_since);
    if phase > Phase::Queued {
        node.borrowed = borrowed;
    }
    if state.is_settled()
        && let Some(usage) = core.result().and_then(|result| result.usage.as_ref())
    {
        node.usage = Some(usage.clone());
    }
}

fn process_node(core: &RunCore, process: &Process) -> Node {
    let mut node = Node::new(process.node, Some(core.id().into()), NodeKind::Process);
    node.depth = core.seat.depth;
    node.label = Some((&*process.program).into());
    node.pid = Some(process.pid);
    node.created = core.shared.clock.stamp(process.since);
    node.since = node.created;
    node.revision = process.revision;
    node
}

/// Shows a process that a child has just reported.
pub(crate) fn announce_process(core: &RunCore, process: &Process) {
    let revision = core.shared.channel.next();
    core.live_or_new().set_process_revision(revision);
    let node = Arc::new(process_node(core, &Process { revision, ..process.clone() }));
    core.send(|| Item::Node(node.clone()));
}
