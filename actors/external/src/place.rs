//! Where a program stands in the tree.

use subagents_seam::StartContext;

/// A child's place in the tree, which its environment tells it, so that depth survives the process border (`SPEC 5.1`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "two numbers, which are all there is to it")]
pub struct Place {
    /// How deep it is.
    pub depth: u32,
    /// How deep its own delegations may go; none is unbounded.
    pub max_depth: Option<u32>,
}

impl Place {
    /// That of the child which is being started.
    pub fn of(cx: &StartContext) -> Self {
        Self { depth: cx.depth(), max_depth: cx.max_depth() }
    }

    /// The variables that tell it.
    pub fn variables(self) -> Vec<(&'static str, String)> {
        let depth = ("SUBAGENTS_DEPTH", self.depth.to_string());
        let cap = self.max_depth.map(|cap| ("SUBAGENTS_MAX_DEPTH", cap.to_string()));
        std::iter::once(depth).chain(cap).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn a_cap_is_told_where_there_is_one() {
        let depth = ("SUBAGENTS_DEPTH", "3".to_owned());
        assert_eq!(Place { depth: 3, max_depth: None }.variables(), [depth.clone()]);
        let cap = ("SUBAGENTS_MAX_DEPTH", "5".to_owned());
        assert_eq!(Place { depth: 3, max_depth: Some(5) }.variables(), [depth, cap]);
    }
}
