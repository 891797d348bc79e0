//! Secrets that a child is given do not come back: what it says of them is masked. Pure.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;

use crate::environment::looks_secret;

/// A value that is shorter is no secret worth the name, and would be found in innocent words.
const SHORTEST: usize = 6;
/// Nor is a number that is shorter: it is a limit or a count, and would be found in other numbers.
const SHORTEST_NUMBER: usize = 12;

/// The values that are masked, each by its name: those of the variables whose names look like secrets (`SPEC 17.3`), from
/// six bytes on, numbers from twelve.
#[derive(Clone, Default)]
pub struct Secrets {
    values: Vec<(String, Vec<u8>)>,
    /// The bytes that they begin with, each once: most text has no place to look at twice.
    begins: Vec<u8>,
}

// Names only.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values.iter().map(|(name, _)| name)).finish()
    }
}

impl Secrets {
    /// Of these variables, those that are secrets.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let secret = variables.into_iter().filter(|(name, _)| looks_secret(name));
        let mut secrets: Vec<_> =
            secret.map(|(name, value)| (name.to_string_lossy().into_owned(), value.into_vec())).collect();
        // What a child says may have been made text by the time that it is looked at.
        let as_text = secrets.iter().filter(|(_, value)| std::str::from_utf8(value).is_err());
        let as_text: Vec<_> = as_text
            .map(|(name, value)| (name.clone(), String::from_utf8_lossy(value).into_owned().into_bytes()))
            .collect();
        secrets.extend(as_text);
        secrets.retain(|(_, value)| {
            let number = value.iter().all(u8::is_ascii_digit);
            value.len() >= if number { SHORTEST_NUMBER } else { SHORTEST }
        });
        Self { values: secrets, begins: Vec::new() }.sorted()
    }

    /// These and others.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.values.extend(others.values);
        self.sorted()
    }

    /// Where one is the beginning of another, the whole one is masked.
    fn sorted(mut self) -> Self {
        self.values.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        self.begins = self.values.iter().map(|(_, value)| value[0]).collect();
        self.begins.sort_unstable();
        self.begins.dedup();
        self
    }

    /// The text with the name of each secret in place of its value.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.values.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut masked = Vec::with_capacity(text.len());
        self.scan(text.as_bytes(), true, &mut masked);
        Cow::Owned(String::from_utf8_lossy(&masked).into_owned())
    }

    /// Masks bytes that come in portions.
    pub fn masker(&self) -> Masker {
        Masker { secrets: self.clone(), waiting: Vec::new() }
    }

    /// The first place in `bytes` that is one, or may become one with what follows; with `last` nothing follows.
    fn find(&self, bytes: &[u8], last: bool) -> Option<Found<'_>> {
        let mut from = 0;
        while let Some(offset) = self.first_begin(&bytes[from..]) {
            let at = from + offset;
            let rest = &bytes[at..];
            let becomes = |value: &[u8]| value.len() > rest.len() && value.starts_with(rest);
            if !last && self.values.iter().any(|(_, value)| becomes(value)) {
                return Some(Found::Beginning { at });
            }
            if let Some((name, value)) = self.values.iter().find(|(_, value)| rest.starts_with(value)) {
                return Some(Found::Whole { at, name, length: value.len() });
            }
            from = at + 1;
        }
        None
    }

    fn first_begin(&self, bytes: &[u8]) -> Option<usize> {
        match *self.begins {
            [] => None,
            [one] => memchr::memchr(one, bytes),
            [one, two] => memchr::memchr2(one, two, bytes),
            [one, two, three] => memchr::memchr3(one, two, three, bytes),
            ref many => bytes.iter().position(|byte| many.contains(byte)),
        }
    }

    /// Gives out what is decided of `bytes`; says how much of them that is. With `last` nothing follows, so it is all.
    fn scan(&self, bytes: &[u8], last: bool, out: &mut Vec<u8>) -> usize {
        let mut done = 0;
        loop {
            let rest = &bytes[done..];
            match self.find(rest, last) {
                None => {
                    out.extend_from_slice(rest);
                    return bytes.len();
                }
                Some(Found::Beginning { at }) => {
                    out.extend_from_slice(&rest[..at]);
                    return done + at;
                }
                Some(Found::Whole { at, name, length }) => {
                    out.extend_from_slice(&rest[..at]);
                    out.push(b'[');
                    out.extend_from_slice(name.as_bytes());
                    out.push(b']');
                    done += at + length;
                }
            }
        }
    }
}

/// Where a secret is in some bytes.
enum Found<'a> {
    /// From there on they are the beginning of one.
    Beginning { at: usize },
    /// All of it.
    Whole { at: usize, name: &'a str, length: usize },
}

/// Masks bytes that come in portions: what may be the beginning of a secret waits for what follows.
#[derive(Debug, Default)]
pub struct Masker {
    secrets: Secrets,
    waiting: Vec<u8>,
}

impl Masker {
    /// Takes a portion; gives what is known to be none of a secret, or is masked.
    pub fn push<'a>(&mut self, portion: &'a [u8]) -> Cow<'a, [u8]> {
        if self.waiting.is_empty() && self.secrets.find(portion, false).is_none() {
            return Cow::Borrowed(portion);
        }
        self.waiting.extend_from_slice(portion);
        let mut masked = Vec::with_capacity(self.waiting.len());
        let decided = self.secrets.scan(&self.waiting, false, &mut masked);
        self.waiting.drain(..decided);
        Cow::Owned(masked)
    }

    /// What still waits, when nothing follows.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut masked = Vec::new();
        self.secrets.scan(&std::mem::take(&mut self.waiting), true, &mut masked);
        masked
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
            ("MAX_TOKENS", "100000"),
            ("LINE_KEY", "trailing\n"),
        ]);
        for (text, masked) in [
            ("calling with hunter2secret!", "calling with [API_KEY]!"),
            ("hunter2secret-and-more hunter2secret", "[LONG_TOKEN] [API_KEY]"),
            ("hunter2secret-and-less", "[API_KEY]-and-less"),
            ("truecolor 12345 100000 hunter2secre", "truecolor 12345 100000 hunter2secre"),
            ("a trailing\nline", "a [LINE_KEY]line"),
        ] {
            assert_eq!(secrets.mask(text), masked);
        }
        assert!(!format!("{secrets:?} {:?}", secrets.masker()).contains("hunter2"));
    }

    proptest! {
        #[test]
        fn any_portions_are_masked_as_the_whole_is(
            parts in prop::collection::vec(
                prop_oneof!["[a-c]{0,3}", Just("abcabc".to_owned()), Just("abcabc-漢".to_owned()), Just("bcabca".to_owned())],
                0..12,
            ),
            cuts in prop::collection::vec(1usize..5, 1..20),
            // They are looked for in another way for each number of bytes that they begin with.
            others in 0usize..3,
        ) {
            let all = [("A_KEY", "abcabc"), ("B_KEY", "abcabc-漢"), ("C_KEY", "bcabca"), ("D_KEY", "xxxxxx"), ("E_KEY", "yyyyyy")];
            let secrets = secrets(&all[..3 + others]);
            let text = parts.concat();
            let (mut masker, mut out, mut rest) = (secrets.masker(), Vec::new(), text.as_bytes());
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (portion, left) = rest.split_at((*cut).min(rest.len()));
                out.extend_from_slice(&masker.push(portion));
                rest = left;
            }
            out.extend(masker.finish());
            let whole = secrets.mask(&text).into_owned();
            prop_assert_eq!(&out, whole.as_bytes());
            let out = String::from_utf8(out).unwrap();
            prop_assert!(!out.contains("abcabc") && !out.contains("bcabca"), "{}", out);
        }
    }
}
