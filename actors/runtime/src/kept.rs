//! The ring of gone runs: a tree that forgets the failure you came to look at is useless, one that forgets nothing is
//! a leak.

use crate::{core::RunCore, settlement::Settled, tree};
use serde_json::Value;
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use subagents_seam::{ContentBlock, Node, NodeEnd, RunId, Timestamp};

/// As many bytes of answers are remembered at most.
const BYTES: usize = 64 << 20;

pub(crate) struct Kept {
    most: usize,
    age: Duration,
    ring: Mutex<Ring>,
}

struct Record {
    /// Without its end where the outcome tells it: most gone nodes are never looked at.
    node: Node,
    outcome: Option<Settled>,
    /// Of its answer.
    bytes: usize,
}

/// What a forgotten record still held.
struct Forgotten(#[expect(dead_code, reason = "held to be dropped")] Option<Settled>);

#[derive(Default)]
struct Ring {
    /// Records, not runs: a run's own memory is best freed while it is warm.
    records: VecDeque<Record>,
    /// Of the answers.
    bytes: usize,
    /// How many of the oldest have given up their answers.
    bare: usize,
    forgotten: u64,
}

impl Kept {
    pub(crate) fn new(most: usize, age: Duration) -> Self {
        Self { most, age, ring: Mutex::default() }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, core: &RunCore) {
        let (glance, outcome) = (core.glance(), core.stored());
        let bytes = bytes_of(outcome.as_ref());
        let told = matches!(outcome, Some(Ok(_))) && core.leak().is_none();
        let end = if told { None } else { tree::end(core, glance.state) };
        // Dropped outside the lock: each may be the last hold on a large result.
        let _dropped = {
            let mut ring = self.ring();
            ring.bytes += bytes;
            ring.records.push_back(Record { node: tree::blank_node(core), outcome, bytes });
            // In place, as in a copy of the tree.
            let Some(Record { node, .. }) = ring.records.back_mut() else { return };
            tree::fill(node, core, &glance, &core.shared.clock);
            node.end = end;
            let now = node.since;
            (self.prune(&mut ring, now), ring.strip())
        };
    }

    /// Takes out what is too much or too old; the oldest first. Nearly always it is one.
    fn prune(&self, ring: &mut Ring, now: Timestamp) -> (Forgotten, Vec<Forgotten>) {
        let Some(first) = self.take_excess(ring, now) else { return (Forgotten(None), Vec::new()) };
        (first, std::iter::from_fn(|| self.take_excess(ring, now)).collect())
    }

    /// Forgets the oldest, if it is one too many or too old.
    fn take_excess(&self, ring: &mut Ring, now: Timestamp) -> Option<Forgotten> {
        let oldest = ring.records.front()?;
        if ring.records.len() <= self.most && oldest.node.since.until(now) <= self.age {
            return None;
        }
        let Record { outcome, bytes, .. } = ring.records.pop_front()?;
        ring.bytes -= bytes;
        ring.bare = ring.bare.saturating_sub(1);
        ring.forgotten += 1;
        Some(Forgotten(outcome))
    }

    /// How many were ever pushed.
    pub(crate) fn pushed(&self) -> u64 {
        let ring = self.ring();
        ring.forgotten + ring.records.len() as u64
    }

    /// The gone nodes, the oldest first, and how many are not remembered any more.
    pub(crate) fn nodes(&self, now: Timestamp) -> (Vec<Node>, u64) {
        let mut ring = self.ring();
        let dropped = self.prune(&mut ring, now);
        let nodes = ring.records.iter().map(Record::node).collect();
        let forgotten = ring.forgotten;
        drop(ring);
        drop(dropped);
        (nodes, forgotten)
    }

    pub(crate) fn outcome(&self, run: RunId, now: Timestamp) -> Option<Settled> {
        let mut ring = self.ring();
        let dropped = self.prune(&mut ring, now);
        let outcome = ring
            .records
            .iter()
            .find(|record| record.node.id == run.into())
            .and_then(|record| record.outcome.clone());
        drop(ring);
        drop(dropped);
        outcome
    }
}

impl Record {
    fn end(&self) -> Option<Box<NodeEnd>> {
        let Some(Ok(result)) = &self.outcome else { return None };
        NodeEnd::new(Some(result.stop_reason.clone()), None, None)
    }

    fn node(&self) -> Node {
        let mut node = self.node.clone();
        node.end = node.end.or_else(|| self.end());
        node
    }
}

impl Ring {
    /// Where the answers are too many bytes, the oldest are forgotten; that the runs were there, and why one failed, is
    /// not.
    fn strip(&mut self) -> Vec<Settled> {
        let mut answers = Vec::new();
        while self.bytes > BYTES
            && let Some(record) = self.records.get_mut(self.bare)
        {
            self.bare += 1;
            if record.bytes > 0 {
                record.node = record.node();
                self.bytes -= std::mem::take(&mut record.bytes);
                answers.extend(record.outcome.take());
            }
        }
        answers
    }
}

/// About as many bytes as its answer holds in memory.
fn bytes_of(outcome: Option<&Settled>) -> usize {
    let Some(Ok(result)) = outcome else { return 0 };
    let blocks = result.output.blocks().iter().map(block_bytes).sum::<usize>();
    let denied = &result.details.denied_calls;
    let denied = denied.iter().map(|denied| denied.tool.len() + denied.reason.len()).sum::<usize>();
    let attempts = result.details.schema_attempts.iter().flat_map(|attempt| &attempt.errors);
    blocks
        + result.structured.as_ref().map_or(0, value_bytes)
        + denied
        + attempts.map(String::len).sum::<usize>()
}

fn block_bytes(block: &ContentBlock) -> usize {
    match block {
        ContentBlock::Text { text } => text.len(),
        ContentBlock::Image { data, .. } => data.len(),
        ContentBlock::Link { uri, name } => uri.len() + name.len(),
        _ => 0,
    }
}

fn value_bytes(value: &Value) -> usize {
    let mut bytes = 0;
    // Not recursive: a child may have nested it deeper than a stack is.
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        bytes += size_of::<Value>();
        match value {
            Value::String(text) => bytes += text.len(),
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                bytes += fields.keys().map(String::len).sum::<usize>();
                open.extend(fields.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;
    use subagents_seam::{Content, Diagnostic, NodeId, NodeKind, StopReason, SubagentResult};

    fn pushed(kept: &Kept, result: SubagentResult) -> RunId {
        let id = RunId::mint(1, 1, kept.pushed());
        let outcome: Option<Settled> = Some(Ok(Arc::new(result)));
        let bytes = bytes_of(outcome.as_ref());
        let mut ring = kept.ring();
        ring.bytes += bytes;
        ring.records.push_back(Record {
            node: Node::new(NodeId::from(id), None, NodeKind::Run),
            outcome,
            bytes,
        });
        drop((kept.prune(&mut ring, Timestamp::default()), ring.strip()));
        id
    }

    #[test]
    fn a_large_answer_takes_no_failure_with_it() {
        let kept = Kept::new(8, Duration::MAX);
        let now = Timestamp::default();
        let failed = pushed(&kept, SubagentResult::error(Diagnostic::new("x", "y")));
        let small = pushed(&kept, SubagentResult::completed("small"));
        let large = pushed(&kept, SubagentResult::completed("x".repeat(BYTES)));
        assert!(kept.outcome(failed, now).is_some());
        assert!(kept.outcome(small, now).is_none());
        assert!(kept.outcome(large, now).is_some(), "what fits is remembered");
        let larger = pushed(&kept, SubagentResult::completed("x".repeat(BYTES + 1)));
        assert!(kept.outcome(large, now).is_none() && kept.outcome(larger, now).is_none());
        let (nodes, forgotten) = kept.nodes(now);
        assert_eq!((nodes.len(), forgotten), (4, 0));
        let reasons: Vec<_> = nodes.iter().map(|node| node.end.as_ref()?.stop_reason.clone()).collect();
        let completed = Some(StopReason::Completed);
        assert_eq!(reasons, [Some(StopReason::Error), completed.clone(), completed.clone(), completed]);
        for _ in 0..8 {
            let _ = pushed(&kept, SubagentResult::completed("small"));
        }
        assert_eq!(kept.nodes(now).1, 4);
        let ring = kept.ring();
        assert_eq!((ring.bare, ring.bytes), (0, 40));
    }

    #[test]
    fn every_part_of_an_answer_counts() {
        let megabyte = "x".repeat(1 << 20);
        let image = ContentBlock::Image { mime_type: "image/png".into(), data: megabyte.as_str().into() };
        let mut result = SubagentResult::completed(Content::from(vec![image]));
        result.structured = Some(json!({ "a": [megabyte, 1, null], "b": { "c": megabyte } }));
        let bytes = bytes_of(Some(&Ok(Arc::new(result))));
        assert!((3 << 20..(3 << 20) + 1_000).contains(&bytes), "{bytes}");
    }
}
