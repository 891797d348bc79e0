//! What is said: text and references, shared and never copied.

use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// One piece of a prompt or an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ContentBlock {
    /// Plain text.
    Text {
        /// The text.
        text: Arc<str>,
    },
    /// An image.
    Image {
        /// Its media type, like `image/png`.
        mime_type: Arc<str>,
        /// Its bytes, base64.
        data: Arc<str>,
    },
    /// A reference to something the child can fetch by itself.
    Link {
        /// Where it is.
        uri: Arc<str>,
        /// What it is called.
        name: Arc<str>,
    },
}

impl ContentBlock {
    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::Image { .. } | Self::Link { .. } => None,
        }
    }
}

/// A sequence of [blocks](ContentBlock): cheap to clone, immutable (SPEC 3.5).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Content(Repr);

#[derive(Clone, Default, PartialEq, Eq)]
enum Repr {
    #[default]
    Empty,
    /// Nearly every prompt and answer is one text: no list is allocated for it.
    One(ContentBlock),
    Many(Arc<[ContentBlock]>),
}

impl Content {
    /// No block at all.
    pub const EMPTY: Self = Self(Repr::Empty);

    /// One block of text; empty text gives empty content.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        if text.is_empty() { Self::EMPTY } else { Self(Repr::One(ContentBlock::Text { text })) }
    }

    /// The blocks, in order.
    pub fn blocks(&self) -> &[ContentBlock] {
        match &self.0 {
            Repr::Empty => &[],
            Repr::One(block) => std::slice::from_ref(block),
            Repr::Many(blocks) => blocks,
        }
    }

    /// All text blocks joined, without a separator. Blocks that are not text are left out.
    pub fn to_text(&self) -> String {
        self.blocks().iter().filter_map(ContentBlock::as_text).collect()
    }

    /// Whether nothing in it can be read: only white space, escape sequences, control and hidden characters, and no block that
    /// is not text.
    pub fn is_blank(&self) -> bool {
        self.blocks().iter().all(|block| block.as_text().is_some_and(crate::text::is_blank))
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.blocks()).finish()
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<Arc<str>> for Content {
    fn from(text: Arc<str>) -> Self {
        Self::text(text)
    }
}

impl From<Vec<ContentBlock>> for Content {
    fn from(blocks: Vec<ContentBlock>) -> Self {
        blocks.into_iter().collect()
    }
}

impl FromIterator<ContentBlock> for Content {
    fn from_iter<I: IntoIterator<Item = ContentBlock>>(blocks: I) -> Self {
        let mut blocks = blocks.into_iter();
        let Some(first) = blocks.next() else { return Self::EMPTY };
        match blocks.next() {
            None => Self(Repr::One(first)),
            Some(second) => Self(Repr::Many([first, second].into_iter().chain(blocks).collect())),
        }
    }
}

impl Serialize for Content {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.blocks().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::{Content, ContentBlock};

    #[test]
    fn blank_means_nothing_to_read() {
        let image = ContentBlock::Image { mime_type: "image/png".into(), data: "AA==".into() };
        for (content, blank) in [
            (Content::EMPTY, true),
            (Content::text(""), true),
            (Content::text(" \n\t"), true),
            (Content::text("."), false),
            (Content::text("\u{200b}\u{feff}\u{ad} \u{0}"), true),
            (Content::text("\u{1b}[2J\u{1b}[H"), true),
            (Content::text("\u{1b}[31mred"), false),
            (Content::from(vec![image]), false),
        ] {
            assert_eq!(content.is_blank(), blank, "{content:?}");
        }
    }

    #[test]
    fn content_round_trips_through_json() {
        let content = Content::from(vec![
            ContentBlock::Text { text: "a".into() },
            ContentBlock::Link { uri: "file:///x".into(), name: "x".into() },
        ]);
        let json = serde_json::to_string(&content).expect("content is lossless JSON");
        assert_eq!(serde_json::from_str::<Content>(&json).expect("what was written is readable"), content);
        assert_eq!(content.to_text(), "a");
    }
}
