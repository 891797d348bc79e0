//! The live tree as people and programs see it. Looking at it changes nothing.

use crate::{AgentId, Event, Name, NodeId, StopReason, Usage, Waiting, text};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    num::NonZeroU64,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A point in time: milliseconds since the Unix epoch, taken from the service's own steady clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct Timestamp(
    /// One more than the milliseconds, so that an `Option` needs no more room: nodes are copied by the hundred thousand.
    NonZeroU64,
);

impl Timestamp {
    /// This many milliseconds after the Unix epoch.
    pub const fn from_millis(ms: u64) -> Self {
        match NonZeroU64::new(ms.saturating_add(1)) {
            Some(more) => Self(more),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// The wall clock's now.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0.get() - 1
    }

    /// How long before `later` this was; zero if it was not before.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_millis(later.as_millis().saturating_sub(self.as_millis()))
    }
}

impl Default for Timestamp {
    fn default() -> Self {
        Self::from_millis(0)
    }
}

impl From<u64> for Timestamp {
    fn from(ms: u64) -> Self {
        Self::from_millis(ms)
    }
}

impl From<Timestamp> for u64 {
    fn from(timestamp: Timestamp) -> Self {
        timestamp.as_millis()
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({})", self.as_millis())
    }
}

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NodeKind {
    /// The service itself: the root of the tree.
    Service,
    /// A root or an adopted agent: one that delegates and is no run.
    Parent,
    /// A delegation.
    Run,
    /// An agent in this process.
    Agent,
    /// An operating-system process.
    Process,
}

/// Where a run is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Phase {
    /// It waits for a slot.
    Queued,
    /// The provider makes its child.
    Starting,
    /// Published; the child works.
    Running,
    /// Settled or rejected; the child is torn down.
    Closing,
    /// Nothing is left of it.
    Gone,
}

impl Phase {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Closing => "closing",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a node waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "on", content = "what", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Wait {
    /// A slot, with a ticket: of two that wait for the same limit the lower one is served first.
    Slot(u64),
    /// The provider's start.
    Start,
    /// The child, which said nothing in particular.
    Child,
    /// A tool, by name.
    Tool(Arc<str>),
    /// An answer to a permission request, by its id.
    Permission(Arc<str>),
    /// A model.
    Model,
    /// Something else, in the provider's words.
    Other(Arc<str>),
    /// The end of the child's teardown.
    Close,
}

impl From<Waiting> for Wait {
    fn from(waiting: Waiting) -> Self {
        match waiting {
            Waiting::Tool(name) => Self::Tool(name),
            Waiting::Permission(id) => Self::Permission(id),
            Waiting::Model => Self::Model,
            Waiting::Other(what) => Self::Other(what),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(_) => f.write_str("waits for a slot"),
            Self::Start => f.write_str("waits for its provider"),
            Self::Child => f.write_str("waits for its child"),
            Self::Tool(name) => write!(f, "in tool {}", text::sanitised(name)),
            Self::Permission(id) => write!(f, "waits for permission {}", text::sanitised(id)),
            Self::Model => f.write_str("waits for its model"),
            Self::Other(what) => write!(f, "waits: {}", text::sanitised(what)),
            Self::Close => f.write_str("is torn down"),
        }
    }
}

/// One node of the tree: a whole, consistent record.
///
/// `last_progress` and `usage` are as of the moment of looking; they change without an event of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Node {
    /// Who it is. A run's node has the run's id.
    pub id: NodeId,
    /// The node above; `None` for the service.
    pub parent: Option<NodeId>,
    /// What it stands for.
    pub kind: NodeKind,
    /// Its depth of delegation: 0 for the service and its roots.
    pub depth: u32,
    /// The caller's label; a process's program; a root's working directory.
    pub label: Option<Name>,
    /// The provider.
    pub provider: Option<Name>,
    /// The child of a run.
    pub agent: Option<AgentId>,
    /// Where it is on its way.
    pub phase: Phase,
    /// Since when it is in this phase.
    pub since: Timestamp,
    /// When it came into being.
    pub created: Timestamp,
    /// What it waits for.
    pub wait: Option<Wait>,
    /// Since when it waits for that.
    pub wait_since: Option<Timestamp>,
    /// Its place in the waiting line, from 1; set in a [`Tree`] only.
    pub place: Option<u32>,
    /// Whether it runs in a slot that its parent lent.
    pub borrowed: bool,
    /// The operating system's id of a process.
    pub pid: Option<u32>,
    /// Its last sign of life.
    pub last_progress: Option<Timestamp>,
    /// What it used up so far.
    pub usage: Option<Box<Usage>>,
    /// How it ended, once it has.
    pub end: Option<Box<NodeEnd>>,
    /// Grows with every change in the service; a record with a higher one is newer.
    pub revision: u64,
}

impl Node {
    #[doc(hidden)]
    pub fn new(id: NodeId, parent: Option<NodeId>, kind: NodeKind) -> Self {
        Self {
            id,
            parent,
            kind,
            depth: 0,
            label: None,
            provider: None,
            agent: None,
            phase: Phase::Running,
            since: Timestamp::from_millis(0),
            created: Timestamp::from_millis(0),
            wait: None,
            wait_since: None,
            place: None,
            borrowed: false,
            pid: None,
            last_progress: None,
            usage: None,
            end: None,
            revision: 0,
        }
    }

    /// Why a published run ended, once it has.
    pub fn stop_reason(&self) -> Option<&StopReason> {
        self.end.as_deref().and_then(|end| end.stop_reason.as_ref())
    }

    /// The code of the error that rejected a start.
    pub fn error(&self) -> Option<&str> {
        self.end.as_deref().and_then(|end| end.error.as_deref())
    }

    /// What may be left of it.
    pub fn leaked(&self) -> Option<&str> {
        self.end.as_deref().and_then(|end| end.leaked.as_deref())
    }
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeEnd {
    /// Why a published run ended.
    pub stop_reason: Option<StopReason>,
    /// The code of the error that rejected its start.
    pub error: Option<Name>,
    /// What may be left of it.
    pub leaked: Option<Arc<str>>,
}

impl NodeEnd {
    #[doc(hidden)]
    pub fn new(
        stop_reason: Option<StopReason>,
        error: Option<Name>,
        leaked: Option<Arc<str>>,
    ) -> Option<Box<Self>> {
        let known = stop_reason.is_some() || error.is_some() || leaked.is_some();
        known.then(|| Box::new(Self { stop_reason, error, leaked }))
    }
}

/// A copy of the tree. `Display` draws it; it serializes to JSON.
///
/// Each node is whole; the copy is not one instant for all of them. Its live nodes, together with the events after it,
/// equal those of any later copy: [`Tree::apply`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tree {
    /// When it was taken.
    pub taken_at: Timestamp,
    /// The live nodes, in no particular order.
    pub nodes: Vec<Node>,
    /// Nodes that are gone and still remembered, the oldest first.
    pub gone: Vec<Node>,
    /// How many gone nodes are not remembered any more.
    pub forgotten: u64,
    /// Where the nodes were last found, for `apply`.
    #[serde(skip)]
    places: HashMap<NodeId, usize>,
}

impl Tree {
    #[doc(hidden)]
    pub fn new(taken_at: Timestamp, nodes: Vec<Node>, gone: Vec<Node>, forgotten: u64, queued: bool) -> Self {
        let mut tree = Self { taken_at, nodes, gone, forgotten, places: HashMap::new() };
        if queued {
            tree.number_the_queue();
        }
        tree
    }

    /// The node with this id, live or remembered.
    pub fn node(&self, id: impl Into<NodeId>) -> Option<&Node> {
        let id = id.into();
        self.nodes.iter().chain(&self.gone).find(|node| node.id == id)
    }

    /// The live nodes that have been in their phase for longer than `age`.
    pub fn older_than(&self, age: Duration) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| node.since.until(self.taken_at) > age)
    }

    /// Brings the live nodes up to date with one event. A change that is not newer than the copy's node is skipped.
    ///
    /// What is gone, and when the copy was taken, stay as they were: to judge ages by a copy that is kept up to date, set
    /// [`taken_at`](Self::taken_at) from [`now`](Timestamp::now).
    pub fn apply(&mut self, event: &Event) {
        let mut waits = false;
        match event {
            Event::NodeChanged(change) => match self.position(change.id()) {
                Some(i) if self.nodes[i].revision < change.revision() => {
                    let node = change.node();
                    waits = is_queued(&node) || is_queued(&self.nodes[i]);
                    self.nodes[i] = node;
                }
                Some(_) => {}
                None => {
                    let node = change.node();
                    waits = is_queued(&node);
                    self.places.insert(node.id, self.nodes.len());
                    self.nodes.push(node);
                }
            },
            Event::NodeGone { id, .. } => {
                if let Some(i) = self.position(*id) {
                    let node = self.nodes.swap_remove(i);
                    waits = is_queued(&node);
                    self.places.remove(id);
                    if let Some(moved) = self.nodes.get(i) {
                        self.places.insert(moved.id, i);
                    }
                }
            }
            Event::ProviderAdded { .. }
            | Event::ProviderRemoved { .. }
            | Event::Started(_)
            | Event::Ended(_) => {}
        }
        if waits {
            self.number_the_queue();
        }
    }

    /// Where a node stands. Whoever reorders `nodes` by hand only costs a new look at all of them.
    fn position(&mut self, id: NodeId) -> Option<usize> {
        let stale = self.places.len() != self.nodes.len()
            || self.places.get(&id).is_some_and(|i| self.nodes.get(*i).is_none_or(|node| node.id != id));
        if stale {
            self.places = self.nodes.iter().enumerate().map(|(i, node)| (node.id, i)).collect();
        }
        self.places.get(&id).copied()
    }

    /// Places follow from the tickets: by provider, the lowest first.
    fn number_the_queue(&mut self) {
        let mut waiting: Vec<_> = self
            .nodes
            .iter_mut()
            .filter_map(|node| {
                node.place = None;
                if let Some(Wait::Slot(ticket)) = node.wait { Some((ticket, node)) } else { None }
            })
            .collect();
        waiting.sort_unstable_by_key(|(ticket, _)| *ticket);
        let mut places: HashMap<Option<Name>, u32> = HashMap::new();
        for (_, node) in waiting {
            let place = places.entry(node.provider.clone()).or_default();
            *place += 1;
            node.place = Some(*place);
        }
    }

    /// The tree as `Display` draws it, with a row of its own below each node of which there is more to say.
    ///
    /// What is said is made safe to show, and one line.
    pub fn drawn_with(&self, more: impl Fn(&Node) -> Option<String>) -> String {
        let mut drawn = String::new();
        // A `String` takes everything.
        let _ = self.draw(&mut drawn, &more, &|_| None);
        drawn
    }

    /// The tree as `Display` draws it, with a tag in brackets behind the name of each node that has one.
    ///
    /// A tag is made safe to show, and one line.
    pub fn drawn_tagged(&self, tag: impl Fn(&Node) -> Option<String>) -> String {
        let mut drawn = String::new();
        // A `String` takes everything.
        let _ = self.draw(&mut drawn, &|_| None, &tag);
        drawn
    }

    fn draw(
        &self,
        f: &mut impl fmt::Write,
        more: &dyn Fn(&Node) -> Option<String>,
        tag: &dyn Fn(&Node) -> Option<String>,
    ) -> fmt::Result {
        let known: HashSet<NodeId> = self.nodes.iter().map(|node| node.id).collect();
        let mut below: BTreeMap<Option<NodeId>, Vec<&Node>> = BTreeMap::new();
        for node in &self.nodes {
            below.entry(node.parent.filter(|parent| known.contains(parent))).or_default().push(node);
        }
        for nodes in below.values_mut() {
            nodes.sort_unstable_by_key(|node| (node.created, node.id));
        }
        // An explicit stack: a tree may be deeper than a thread's own.
        let mut stack: Vec<(&Node, String, String)> = Vec::new();
        for node in below.remove(&None).unwrap_or_default().into_iter().rev() {
            stack.push((node, String::new(), String::new()));
        }
        while let Some((node, lead, indent)) = stack.pop() {
            writeln!(f, "{lead}{}", self.line(node, tag(node).as_deref()))?;
            let children = below.remove(&Some(node.id)).unwrap_or_default();
            if let Some(said) = more(node) {
                let fork = if children.is_empty() { "└─ " } else { "├─ " };
                writeln!(f, "{indent}{fork}{}", text::sanitised(&said).replace(['\n', '\t'], " "))?;
            }
            let last = children.len().saturating_sub(1);
            for (i, child) in children.into_iter().enumerate().rev() {
                let (fork, rest) = if i == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
                // What is deeper is drawn as if it were not.
                let rest = if indent.len() < DEEPEST { rest } else { "" };
                stack.push((child, format!("{indent}{fork}"), format!("{indent}{rest}")));
            }
        }
        Ok(())
    }

    fn line(&self, node: &Node, tag: Option<&str>) -> String {
        let mut line = match node.kind {
            NodeKind::Service => "service".to_owned(),
            NodeKind::Parent => "parent".to_owned(),
            NodeKind::Run => shown(node.provider.as_deref().unwrap_or("run")),
            NodeKind::Agent => "agent".to_owned(),
            NodeKind::Process => format!("process {}", node.pid.unwrap_or_default()),
        };
        if let Some(label) = node.label.as_deref() {
            line.push(' ');
            line.push_str(&shown(label));
        }
        if let Some(tag) = tag {
            line.push_str(" [");
            line.push_str(&text::sanitised(tag).replace(['\n', '\t'], " "));
            line.push(']');
        }
        if node.kind == NodeKind::Run {
            let mut fact = |text: &str| {
                line.push_str(" · ");
                line.push_str(text);
            };
            fact(node.phase.as_str());
            if let Some(place) = node.place {
                fact(&format!("place {place}"));
            }
            if node.borrowed {
                fact("borrowed slot");
            }
            if let Some(reason) = node.stop_reason() {
                fact(&text::sanitised(reason.as_str()));
            }
            if let Some(error) = node.error() {
                fact(error);
            }
            if let Some(wait) = &node.wait {
                let since = node.wait_since.unwrap_or(node.since).until(self.taken_at);
                fact(&format!("{wait} for {}", short(since)));
            }
            if let Some(last) = node.last_progress {
                fact(&format!("last sign {} ago", short(last.until(self.taken_at))));
            }
            if let Some(leaked) = node.leaked() {
                fact(&format!("leaked: {}", text::sanitised(leaked)));
            }
        }
        line
    }
}

fn is_queued(node: &Node) -> bool {
    matches!(node.wait, Some(Wait::Slot(_)))
}

/// A duration in the unit that fits it.
fn short(duration: Duration) -> String {
    let ms = duration.as_millis();
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{}m{:02}s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{}h{:02}m", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.draw(f, &|_| None, &|_| None)
    }
}

/// The widest indent, in bytes.
const DEEPEST: usize = 256;

/// One line of bounded length, whoever it is of.
fn shown(name: &str) -> String {
    text::bounded(&text::sanitised(name).replace(['\n', '\t'], " "), 80)
}

#[cfg(test)]
mod tests {
    use super::{Node, NodeKind, Phase, Timestamp, Tree, Wait};
    use crate::{AgentId, NodeId};

    fn run(parent: NodeId, created: u64, wait: Option<Wait>) -> Node {
        let mut node = Node::new(AgentId::new().into(), Some(parent), NodeKind::Run);
        node.provider = Some("wc".into());
        node.created = Timestamp::from_millis(created);
        node.phase = if wait.is_some() { Phase::Queued } else { Phase::Running };
        node.wait = wait;
        node
    }

    #[test]
    fn the_tree_draws_parents_above_their_children_with_places() {
        let service = Node::new(AgentId::new().into(), None, NodeKind::Service);
        let mut first = run(service.id, 1, None);
        first.label = Some("re\u{1b}[31mview\nx".into());
        let inner = run(first.id, 2, None);
        let nodes = vec![
            run(service.id, 4, Some(Wait::Slot(9))),
            run(service.id, 3, Some(Wait::Slot(7))),
            inner,
            first,
            service,
        ];
        let drawn = Tree::new(Timestamp::from_millis(1_500), nodes, Vec::new(), 0, true).to_string();
        assert_eq!(
            drawn,
            "service\n├─ wc review x · running\n│  └─ wc · running\n\
             ├─ wc · queued · place 1 · waits for a slot for 1.5s\n\
             └─ wc · queued · place 2 · waits for a slot for 1.5s\n"
        );
    }

    #[test]
    fn what_is_said_of_a_node_has_a_row_below_it() {
        let service = Node::new(AgentId::new().into(), None, NodeKind::Service);
        let first = run(service.id, 1, None);
        let nodes = vec![run(service.id, 3, None), run(first.id, 2, None), first, service];
        let tree = Tree::new(Timestamp::from_millis(0), nodes, Vec::new(), 0, false);
        let said = |node: &Node| {
            (node.kind == NodeKind::Run).then(|| format!("\u{1b}[2Ja\n{}", node.created.as_millis()))
        };
        assert_eq!(
            tree.drawn_with(said),
            "service\n├─ wc · running\n│  ├─ a 1\n│  └─ wc · running\n│     └─ a 2\n└─ wc · running\n   └─ a 3\n"
        );
        assert_eq!(tree.drawn_with(|_| None), tree.to_string());
        let tagged =
            tree.drawn_tagged(|node| (node.created.as_millis() == 2).then(|| "a\u{1b}[2J\nb".to_owned()));
        assert_eq!(tagged, "service\n├─ wc · running\n│  └─ wc [a b] · running\n└─ wc · running\n");
    }

    #[test]
    fn a_tree_of_any_depth_with_any_names_is_drawn_in_lines_of_bounded_length() {
        let mut nodes = vec![Node::new(AgentId::new().into(), None, NodeKind::Service)];
        for _ in 0..20_000 {
            let mut deeper = run(nodes[nodes.len() - 1].id, 1, None);
            deeper.provider = Some(format!("\u{1b}]0;x\u{7}\u{202e}wc\n{}", "x".repeat(1_000)).into());
            nodes.push(deeper);
        }
        let drawn = Tree::new(Timestamp::from_millis(0), nodes, Vec::new(), 0, false).to_string();
        assert_eq!(drawn.lines().count(), 20_001);
        assert!(drawn.lines().all(|line| line.len() < 500));
        assert!(drawn.contains("└─ wc x") && !drawn.contains(['\u{1b}', '\u{7}', '\u{202e}']));
    }

    #[test]
    fn a_node_whose_parent_left_is_still_drawn() {
        let orphan = run(AgentId::new().into(), 1, None);
        assert_eq!(
            Tree::new(Timestamp::from_millis(0), vec![orphan], Vec::new(), 0, false).to_string(),
            "wc · running\n"
        );
    }
}
