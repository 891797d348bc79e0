//! Short names: of providers, of delegations.

use crate::{RegisterError, text};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

/// An immutable short text. Cheap to clone; up to 23 bytes it lives where it stands, without an allocation.
///
/// ```
/// use subagents_seam::Name;
/// let name: Name = "claude-code".into();
/// assert_eq!(&*name, "claude-code");
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(SmolStr);

impl Name {
    /// A name that a provider may have: 1 to 64 bytes of `a-z`, `0-9`, `.`, `_`, `-`, a letter or digit first.
    ///
    /// ```
    /// use subagents_seam::Name;
    /// assert!(Name::of_provider("claude-code").is_ok());
    /// assert_eq!(Name::of_provider("Claude").unwrap_err().code(), "INVALID_NAME");
    /// ```
    ///
    /// # Errors
    /// [`RegisterError::InvalidName`] for any other.
    pub fn of_provider(name: &str) -> Result<Self, RegisterError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let first = name.bytes().next().is_some_and(plain);
        let rest = name.bytes().all(|byte| plain(byte) || matches!(byte, b'.' | b'_' | b'-'));
        if first && rest && name.len() <= 64 {
            return Ok(name.into());
        }
        Err(RegisterError::InvalidName(text::bounded(&text::sanitised(name), 80).into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

// `Hash` and `Eq` are those of the text.
impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<Arc<str>> for Name {
    fn from(text: Arc<str>) -> Self {
        Self(text.into())
    }
}

impl From<&Name> for Name {
    fn from(name: &Name) -> Self {
        name.clone()
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn spec_2_9_a_provider_name_is_never_empty_and_always_plain() {
        for good in ["a", "0", "wc", "claude-code", "a.b_c-9", &"x".repeat(64)] {
            assert!(Name::of_provider(good).is_ok(), "{good}");
        }
        for bad in ["", " ", "A", "-a", ".a", "a b", "é", "a/b", "a\n", &"x".repeat(65)] {
            assert_eq!(Name::of_provider(bad).unwrap_err().code(), "INVALID_NAME", "{bad}");
        }
    }
}
