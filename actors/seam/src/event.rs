//! What goes out on the broadcast channel. Nothing that a listener does or leaves undone touches a run (SPEC 2.6).

use crate::{AgentId, Content, Name, Node, NodeId, RunId, StopReason};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, sync::Arc};

/// One item of the event stream: the lifecycle of runs and providers, and changes of the tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// A provider was registered.
    ProviderAdded {
        /// Its name.
        name: Name,
    },
    /// A provider's registration ended. Live runs of it go on (SPEC 2.3).
    ProviderRemoved {
        /// Its name.
        name: Name,
    },
    /// A run was published (SPEC 2.5). A rejected start has no lifecycle event.
    Started(RunInfo),
    /// A published run settled: exactly one for each `Started`, after it.
    Ended(RunEndInfo),
    /// A node is new or changed: the whole record.
    NodeChanged(NodeChange),
    /// A node left the tree.
    NodeGone {
        /// The node.
        id: NodeId,
        /// The revision of its going.
        revision: u64,
    },
}

/// Which run (SPEC 1.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunInfo {
    /// The run.
    pub run_id: RunId,
    /// The provider's name when the run started; it need not be registered any more.
    pub provider: Name,
    /// The child.
    pub id: AgentId,
    /// Whether the child is an agent in this process.
    pub local: bool,
}

impl RunInfo {
    #[doc(hidden)]
    pub fn new(run_id: RunId, provider: Name, id: AgentId, local: bool) -> Self {
        Self { run_id, provider, id, local }
    }
}

/// Which run ended, and how (SPEC 1.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunEndInfo {
    /// The same as in its `Started`.
    #[serde(flatten)]
    pub run: RunInfo,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// The final output; absent when empty or when the run has no result.
    pub last_assistant_message: Option<Content>,
}

impl RunEndInfo {
    #[doc(hidden)]
    pub fn new(run: RunInfo, stop_reason: StopReason, last_assistant_message: Option<Content>) -> Self {
        Self { run, stop_reason, last_assistant_message }
    }
}

/// What renders the record of a node as of one change.
#[doc(hidden)]
pub trait NodeSource: Send + Sync {
    fn render(&self, moment: &Moment) -> Node;
}

impl NodeSource for Node {
    fn render(&self, _: &Moment) -> Node {
        self.clone()
    }
}

/// Of which moment a record is to be rendered, in the words of its source.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub revision: u64,
    pub state: u8,
    pub at: u64,
}

/// A new or changed node. The record is rendered when it is asked for: whoever only counts pays for no record.
#[derive(Clone)]
pub struct NodeChange {
    id: NodeId,
    moment: Moment,
    source: Arc<dyn NodeSource>,
}

impl NodeChange {
    #[doc(hidden)]
    pub fn new(id: NodeId, moment: Moment, source: Arc<dyn NodeSource>) -> Self {
        Self { id, moment, source }
    }

    /// The node.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The revision of the change.
    pub fn revision(&self) -> u64 {
        self.moment.revision
    }

    /// The whole record.
    pub fn node(&self) -> Node {
        self.source.render(&self.moment)
    }
}

impl PartialEq for NodeChange {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.revision()) == (other.id, other.revision())
    }
}

impl Serialize for NodeChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.node().serialize(serializer)
    }
}

/// From a record: the change is as of it, and renders it.
impl<'de> Deserialize<'de> for NodeChange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(deserializer)?;
        let moment = Moment { revision: node.revision, state: 0, at: 0 };
        Ok(Self::new(node.id, moment, Arc::new(node)))
    }
}

impl fmt::Debug for NodeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeKind;

    #[test]
    fn an_event_that_was_written_is_read_again() {
        let run = RunInfo::new(RunId::new(), "p".into(), AgentId::new(), true);
        let mut node = Node::new(run.run_id.into(), None, NodeKind::Run);
        (node.revision, node.label) = (7, Some("x".into()));
        let moment = Moment { revision: 7, state: 0, at: 0 };
        let change = NodeChange::new(node.id, moment, Arc::new(node.clone()));
        for event in [
            Event::ProviderAdded { name: "p".into() },
            Event::ProviderRemoved { name: "p".into() },
            Event::Started(run.clone()),
            Event::Ended(RunEndInfo::new(run.clone(), StopReason::Completed, Some("an answer".into()))),
            Event::Ended(RunEndInfo::new(run.clone(), StopReason::Aborted, None)),
            Event::NodeChanged(change),
            Event::NodeGone { id: run.run_id.into(), revision: 8 },
        ] {
            let written = serde_json::to_string(&event).expect("it is written");
            let read: Event = serde_json::from_str(&written).expect(&written);
            assert_eq!(read, event, "{written}");
            if let Event::NodeChanged(change) = read {
                assert_eq!(change.node(), node);
            }
        }
    }
}
