//! The marks by which all that descends from a child is found again, wherever it has moved. Pure.
//!
//! Each child has a *tag*: a number of 19 digits, of which the first 12 say which host started it. It stands as the soft
//! value of two resource limits that Linux has not enforced for twenty years (`RLIMIT_LOCKS`, `RLIMIT_RSS`), which every
//! descendant inherits through fork, exec, `setsid` and `env -i`, and which everybody may read; and once more in the
//! variable `SUBAGENTS_SCOPE`. A tag is above 2⁶⁰, so as a limit it would limit nothing even where it had an effect.
//!
//! A host that is itself somebody's descendant leaves a limit to the host above, or it would take its children away from
//! it; the other one is its own. The variable then holds a path: `TAG/TAG`.

use std::ffi::OsString;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// The variable that holds the path of tags.
pub(crate) const VARIABLE: &str = "SUBAGENTS_SCOPE";

/// How many children a host starts before its numbers begin anew. What is left of a number that comes up again is told
/// apart by its age.
const CHILDREN: u64 = 10_000_000;

/// Ten digits, to which two are added that check them: no limit that somebody has set looks like a tag. Small enough that a
/// whole tag fits into a signed number.
const HOSTS: std::ops::Range<u64> = 1_200_000_000..9_000_000_000;
const CHECK: u64 = 97;

/// The part of a tag that all children of one host share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct HostTag(u64);

/// The tag of one child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tag(u64);

impl HostTag {
    /// One that no other host has: 32 bits by the system's randomness.
    pub(crate) fn fresh() -> Self {
        let random = RandomState::new().hash_one(std::process::id());
        let number = HOSTS.start + random % (HOSTS.end - HOSTS.start);
        Self(number * 100 + number % CHECK)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::from_number(digits(text, 12)?)
    }

    fn from_number(number: u64) -> Option<Self> {
        let (host, check) = (number / 100, number % 100);
        (HOSTS.contains(&host) && host % CHECK == check).then_some(Self(number))
    }
}

impl fmt::Display for HostTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Tag {
    /// The tag in a resource limit, if it is one.
    pub(crate) fn from_limit(limit: u64) -> Option<Self> {
        HostTag::from_number(limit / CHILDREN).map(|_| Self(limit))
    }

    pub(crate) fn as_limit(self) -> u64 {
        self.0
    }

    pub(crate) fn host(self) -> HostTag {
        HostTag(self.0 / CHILDREN)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::from_limit(digits(text, 19)?)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number of exactly so many digits, without a sign.
fn digits(text: &str, count: usize) -> Option<u64> {
    let plain = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// Gives out the tags of one host.
#[derive(Debug)]
pub(crate) struct Tags {
    host: HostTag,
    next: AtomicU64,
    /// The path of a host that is itself somebody's descendant.
    above: Option<String>,
}

impl Tags {
    /// For a host whose own limits and variable are these.
    pub(crate) fn new(limit: Option<Tag>, variable: Option<&str>) -> Self {
        let path = variable.filter(|path| tags(path).is_some()).map(str::to_owned);
        let above = path.or_else(|| limit.map(|tag| tag.to_string()));
        Self { host: HostTag::fresh(), next: AtomicU64::new(0), above }
    }

    pub(crate) fn host(&self) -> HostTag {
        self.host
    }

    pub(crate) fn next(&self) -> Tag {
        let number = self.next.fetch_add(1, Ordering::Relaxed) % CHILDREN;
        Tag(self.host.0 * CHILDREN + number)
    }

    /// What a child with this tag gets in its environment.
    pub(crate) fn variable(&self, tag: Tag) -> OsString {
        match &self.above {
            Some(path) => format!("{path}/{tag}").into(),
            None => tag.to_string().into(),
        }
    }
}

/// The tags of a path; none where it is no path.
fn tags(path: &str) -> Option<Vec<Tag>> {
    path.split('/').map(Tag::parse).collect()
}

/// The tags in the environment of a process, as `/proc/PID/environ` shows it.
pub(crate) fn tags_in(environment: &[u8]) -> Vec<Tag> {
    let entry = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(VARIABLE.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")));
    entry.and_then(|path| tags(std::str::from_utf8(path).ok()?)).unwrap_or_default()
}

/// Whose descendants are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Child(Tag),
    /// All that a host has started.
    Host(HostTag),
}

impl Target {
    pub(crate) fn covers(self, tag: Tag) -> bool {
        match self {
            Self::Child(child) => child == tag,
            Self::Host(host) => host == tag.host(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_limit_that_limits_nothing_and_reads_back() {
        for _ in 0..1000 {
            let tags = Tags::new(None, None);
            let (first, second) = (tags.next(), tags.next());
            assert!(first != second && first.host() == second.host() && first.host() == tags.host());
            assert!(first.as_limit() >= 1 << 60 && i64::try_from(first.as_limit()).is_ok());
            assert_eq!(Tag::from_limit(first.as_limit()), Some(first));
            assert_eq!(Tag::parse(&first.to_string()), Some(first));
            assert_eq!(HostTag::parse(&tags.host().to_string()), Some(tags.host()));
            assert!(Target::Child(first).covers(first) && !Target::Child(first).covers(second));
            assert!(Target::Host(tags.host()).covers(second));
            assert!(first.to_string().starts_with(&tags.host().to_string()));
        }
    }

    #[test]
    fn other_limits_are_no_tags() {
        let powers = (0..64).flat_map(|power| [1 << power, (1 << power) - 1]);
        for limit in powers.chain([u64::MAX, 3 << 60, 5_000_000_000_000_000_000, 9_000_000_000_000_000_000]) {
            assert_eq!(Tag::from_limit(limit), None, "{limit}");
        }
    }

    #[test]
    fn a_nested_host_adds_to_the_path_that_it_was_given() {
        let outer = Tags::new(None, None);
        let tag = outer.next();
        let path = outer.variable(tag).into_string().unwrap();
        assert!(outer.above.is_none());
        for (limit, variable) in [(Some(tag), Some(&*path)), (None, Some(&*path)), (Some(tag), None)] {
            let inner = Tags::new(limit, variable);
            let below = inner.next();
            let mark = inner.variable(below).into_string().unwrap();
            assert_eq!(mark, format!("{tag}/{below}"));
            let environment = format!("A=b\0{VARIABLE}={mark}\0C=d\0");
            assert_eq!(tags_in(environment.as_bytes()), [tag, below]);
        }
        assert!(Tags::new(None, Some("rubbish")).above.is_none());
    }

    #[test]
    fn what_is_no_path_has_no_tags() {
        let good = Tags::new(None, None).next().to_string();
        for (environment, count) in [
            (format!("{VARIABLE}={good}\0"), 1),
            (format!("X{VARIABLE}={good}\0"), 0),
            (format!("{VARIABLE}={good}/\0"), 0),
            (format!("{VARIABLE}=+{good}\0"), 0),
            (format!("{VARIABLE}={good}1\0"), 0),
            (format!("X=1\n{VARIABLE}={good}\0"), 0),
            (String::new(), 0),
        ] {
            assert_eq!(tags_in(environment.as_bytes()).len(), count, "{environment:?}");
        }
    }
}
