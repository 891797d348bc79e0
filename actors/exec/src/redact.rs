//! Configured secrets do not come back: what a program says of them is masked. Pure.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;

use subagents_process::looks_secret;

/// A value that is shorter is no secret worth the name, and would be found in innocent words.
const SHORTEST: usize = 6;

/// The values that are masked, each with its name.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<(String, String)>);

// Names only.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Secrets {
    /// Of these variables, those whose names look like secrets (`SPEC 17.3`).
    pub(crate) fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let secret = variables.into_iter().filter(|(name, _)| looks_secret(name));
        let text = |text: &OsStr| text.to_str().map(str::to_owned);
        let mut secrets: Vec<_> =
            secret.filter_map(|(name, value)| Some((text(&name)?, text(&value)?))).collect();
        secrets.retain(|(_, value)| value.len() >= SHORTEST);
        // Where one is part of another, the whole one is masked.
        secrets.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        Self(secrets)
    }

    /// The text with the name of each secret in place of its value.
    pub(crate) fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut masked = Cow::Borrowed(text);
        for (name, value) in &self.0 {
            if masked.contains(&**value) {
                masked = Cow::Owned(masked.replace(&**value, &format!("[{name}]")));
            }
        }
        masked
    }

    /// How much at the end of a text may be the beginning of a secret, in bytes.
    fn begun(&self, text: &str) -> usize {
        let longest = self.0.first().map_or(0, |(_, value)| value.len());
        let from = text.len().saturating_sub(longest.saturating_sub(1));
        let starts = (from..text.len()).filter(|start| text.is_char_boundary(*start));
        let mut begun =
            starts.filter(|start| self.0.iter().any(|(_, value)| value.starts_with(&text[*start..])));
        begun.next().map_or(0, |start| text.len() - start)
    }
}

/// Masks a text that comes in portions: what may be the beginning of a secret waits for what follows.
#[derive(Debug, Default)]
pub(crate) struct Masked {
    secrets: Secrets,
    waiting: String,
}

impl Masked {
    pub(crate) fn new(secrets: Secrets) -> Self {
        Self { secrets, waiting: String::new() }
    }

    /// Masks a text that is whole.
    pub(crate) fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.secrets.mask(text)
    }

    /// Takes a portion; gives what of the text is known to be none of a secret, or is masked.
    pub(crate) fn push<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        if self.secrets.0.is_empty() {
            return Cow::Borrowed(text);
        }
        self.waiting.push_str(text);
        let masked = self.secrets.mask(&self.waiting).into_owned();
        let begun = self.secrets.begun(&masked);
        let ready = masked.len() - begun;
        masked[ready..].clone_into(&mut self.waiting);
        Cow::Owned(masked[..ready].to_owned())
    }

    /// What still waits, when nothing follows.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secrets(variables: &[(&str, &str)]) -> Secrets {
        Secrets::of(variables.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn the_value_of_a_secret_is_masked_by_its_name() {
        let secrets = secrets(&[
            ("API_KEY", "hunter2secret"),
            ("LONG_TOKEN", "hunter2secret-and-more"),
            ("NO_COLOR", "truecolor"),
            ("SHORT_KEY", "12345"),
        ]);
        for (text, masked) in [
            ("calling with hunter2secret!", "calling with [API_KEY]!"),
            ("hunter2secret-and-more hunter2secret", "[LONG_TOKEN] [API_KEY]"),
            ("truecolor 12345 hunter2secre", "truecolor 12345 hunter2secre"),
        ] {
            assert_eq!(secrets.mask(text), masked);
        }
        assert!(!format!("{secrets:?}").contains("hunter2"));
    }

    proptest! {
        #[test]
        fn any_portions_are_masked_as_the_whole_is(
            parts in prop::collection::vec(prop_oneof!["[a-c]{0,3}", Just("abcabc".to_owned()), Just("aabcab漢".to_owned())], 0..12),
            cuts in prop::collection::vec(1usize..5, 1..20),
        ) {
            let secrets = secrets(&[("A_KEY", "abcabc"), ("B_KEY", "aabcab漢")]);
            let text = parts.concat();
            let mut streamed = Masked::new(secrets.clone());
            let (mut out, mut rest, mut cuts) = (String::new(), &*text, cuts.iter().cycle());
            while let Some((end, _)) = rest.char_indices().nth(*cuts.next().unwrap()) {
                out += &streamed.push(&rest[..end]);
                rest = &rest[end..];
            }
            out += &streamed.push(rest);
            out += &streamed.finish();
            prop_assert!(!out.contains("abcabc") && !out.contains("aabcab漢"), "{}", out);
            if !text.contains("abcabc") && !text.contains("aabcab漢") {
                prop_assert_eq!(out, text);
            }
        }
    }
}
