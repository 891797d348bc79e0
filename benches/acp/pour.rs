//! How much text an answer is, in how many pieces.

/// Chunks of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pour {
    pub(crate) chunks: usize,
    /// Of each.
    pub(crate) bytes: usize,
}

impl Pour {
    /// The shortest answer.
    pub(crate) const ONE: Self = Self { chunks: 1, bytes: 20 };

    /// The prompt that asks for it.
    pub(crate) fn prompt(self) -> String {
        format!("pour {} {} bytes", self.chunks, self.bytes)
    }

    /// The one that is asked for somewhere in this text.
    pub(crate) fn find(text: &str) -> Option<Self> {
        let mut words = text.split_once("pour ")?.1.split(' ');
        let mut number = || words.next()?.parse().ok();
        Some(Self { chunks: number()?, bytes: number()? }).filter(|pour| pour.chunks > 0)
    }

    pub(crate) fn chunk(self) -> String {
        "a plain word or two ".chars().cycle().take(self.bytes).collect()
    }

    /// The length of the whole answer.
    pub(crate) fn text(self) -> usize {
        self.chunks * self.bytes
    }
}
