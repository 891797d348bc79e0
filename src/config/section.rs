//! A table of a configuration, of which every key is read or refused: what is asked for is what is known.

use super::{
    document::{Entry, Item, Value},
    duration,
    error::{ConfigFaultKind, ConfigPlace, Faults},
    nearest, size,
};
use std::{num::NonZeroUsize, time::Duration};
use subagents_seam::{bounded, sanitised};

/// What is wrong with a value, at the very place.
pub(super) struct Wrong {
    pub(super) at: ConfigPlace,
    pub(super) why: String,
}

impl Item {
    pub(super) fn wrong(&self, why: impl Into<String>) -> Wrong {
        Wrong { at: self.at.clone(), why: why.into() }
    }

    pub(super) fn is_text(&self) -> bool {
        raw_text(self).is_some()
    }

    pub(super) fn expected(&self, what: &str) -> Wrong {
        self.wrong(format!("expected {what}, found {}", self.value.kind()))
    }
}

/// A table, of which keys are taken one by one.
pub(super) struct Section {
    path: String,
    at: ConfigPlace,
    rest: Vec<Entry>,
    known: Vec<&'static str>,
}

impl Section {
    /// `path` is empty for the whole file; `at` is where its key stands.
    pub(super) fn open(path: String, at: ConfigPlace, item: Item, faults: &mut Faults) -> Option<Self> {
        let kind = item.value.kind();
        if let Value::Table(rest) = item.value {
            return Some(Self { path, at, rest, known: Vec::new() });
        }
        let why = format!("`{path}` is {kind}; it has to be a table, like [{path}]");
        faults.push(ConfigFaultKind::InvalidValue, &item.at, why);
        None
    }

    /// The key as it would be written in the outermost table.
    fn full(&self, key: &str) -> String {
        let key = bounded(&sanitised(key).replace(['\n', '\t'], " "), 80);
        if self.path.is_empty() { key } else { format!("{}.{key}", self.path) }
    }

    fn take(&mut self, key: &'static str) -> Option<Entry> {
        self.known.push(key);
        let at = self.rest.iter().position(|entry| entry.key == key)?;
        Some(self.rest.remove(at))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.rest.iter().any(|entry| entry.key == key)
    }

    /// The value of a key, where it is there and right.
    pub(super) fn get<T>(
        &mut self,
        key: &'static str,
        faults: &mut Faults,
        read: impl FnOnce(&Item) -> Result<T, Wrong>,
    ) -> Option<T> {
        let entry = self.take(key)?;
        match read(&entry.item) {
            Ok(value) => Some(value),
            Err(wrong) => {
                let why = format!("`{}`: {}", self.full(key), wrong.why);
                faults.push(ConfigFaultKind::InvalidValue, &wrong.at, why);
                None
            }
        }
    }

    /// As [`get`](Self::get), of a key that has to be there.
    pub(super) fn need<T>(
        &mut self,
        key: &'static str,
        example: &str,
        faults: &mut Faults,
        read: impl FnOnce(&Item) -> Result<T, Wrong>,
    ) -> Option<T> {
        if !self.has(key) {
            let why = format!("`{}` has no `{key}`; add one, like {example}", self.path);
            faults.push(ConfigFaultKind::MissingKey, &self.at, why);
        }
        self.get(key, faults, read)
    }

    /// A table in this one.
    pub(super) fn section(&mut self, key: &'static str, faults: &mut Faults) -> Option<Self> {
        let entry = self.take(key)?;
        Self::open(self.full(key), entry.at, entry.item, faults)
    }

    /// All that is left, of a table whose keys are names that somebody chose.
    pub(super) fn into_named(self) -> impl Iterator<Item = (String, Entry)> {
        let Self { path, rest, .. } = self;
        rest.into_iter().map(move |entry| (format!("{path}.{}", entry.key), entry))
    }

    /// Refuses what was not taken.
    pub(super) fn close(self, faults: &mut Faults) {
        for entry in &self.rest {
            let near = nearest(&entry.key, &self.known);
            let advice = near.map_or_else(
                || format!("known here: {}", quoted(&self.known)),
                |near| format!("did you mean `{near}`?"),
            );
            let why = format!("unknown key `{}`; {advice}", self.full(&entry.key));
            faults.push(ConfigFaultKind::UnknownKey, &entry.at, why);
        }
    }
}

pub(super) fn quoted(names: &[impl AsRef<str>]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    names.join(", ")
}

// ---- what a value may be

/// A string, or what a variable holds where that is nothing else that fits.
fn raw_text(item: &Item) -> Option<&str> {
    match (&item.value, &item.raw) {
        (Value::Text(text), _) => Some(text),
        (_, raw) => raw.as_deref(),
    }
}

/// Text that the system takes.
pub(super) fn text(item: &Item) -> Result<String, Wrong> {
    let text = raw_text(item).ok_or_else(|| item.expected("a string"))?;
    if text.contains('\0') {
        return Err(item.wrong("it holds a NUL character, which no program can be given; take it out"));
    }
    Ok(text.to_owned())
}

pub(super) fn boolean(item: &Item) -> Result<bool, Wrong> {
    if let Value::Boolean(boolean) = item.value { Ok(boolean) } else { Err(item.expected("true or false")) }
}

pub(super) fn duration(item: &Item) -> Result<Duration, Wrong> {
    let text = raw_text(item).ok_or_else(|| item.expected("a duration in quotes, like \"30s\""))?;
    duration::parse_duration(text).map_err(|why| item.wrong(why))
}

pub(super) fn size(item: &Item) -> Result<usize, Wrong> {
    let parsed = match (&item.value, raw_text(item)) {
        (Value::Integer(bytes), _) => usize::try_from(*bytes).ok().filter(|bytes| *bytes > 0),
        (_, Some(text)) => size::parse(text),
        (_, None) => return Err(item.expected("a size, like \"16MiB\"")),
    };
    parsed.ok_or_else(|| item.wrong(format!("that is no size; {}", size::EXAMPLE)))
}

/// A whole number from 1 to `most`.
pub(super) fn count(most: usize) -> impl FnOnce(&Item) -> Result<NonZeroUsize, Wrong> {
    move |item| {
        let Value::Integer(count) = item.value else { return Err(item.expected("a whole number, like 8")) };
        let count = usize::try_from(count).ok().filter(|count| *count <= most);
        count.and_then(NonZeroUsize::new).ok_or_else(|| {
            let most = if most == usize::MAX { String::new() } else { format!(" to {most}") };
            item.wrong(format!("give a whole number from 1{most}"))
        })
    }
}

pub(super) fn texts(item: &Item) -> Result<Vec<(&Item, String)>, Wrong> {
    let Value::Array(items) = &item.value else {
        return Err(item.expected("an array of strings, like [\"one\", \"two\"]"));
    };
    items.iter().map(|item| Ok((item, text(item)?))).collect()
}

/// The variables that say a child's place in the tree, and whose it is.
const OURS: [&str; 3] = ["SUBAGENTS_DEPTH", "SUBAGENTS_MAX_DEPTH", "SUBAGENTS_SCOPE"];
/// What overrides a configuration is for this program.
const OVERRIDES: &str = "SUBAGENTS__";

/// What is wrong with the name of a variable.
fn variable(name: &str) -> Option<String> {
    if name.is_empty() || name.contains(['=', '\0']) {
        return Some(
            "that is no name of a variable: it is empty, or holds `=` or a NUL character".to_owned(),
        );
    }
    if name.starts_with(OVERRIDES) {
        return Some(format!("`{}` is for this program; take it out", bounded(&sanitised(name), 80)));
    }
    OURS.contains(&name).then(|| format!("`{name}` is set for each child anew; take it out"))
}

pub(super) fn variable_names(item: &Item) -> Result<Vec<String>, Wrong> {
    let names = texts(item)?.into_iter().map(|(item, name)| match variable(&name) {
        Some(why) => Err(item.wrong(why)),
        None => Ok(name),
    });
    names.collect()
}

/// Names and values; no message holds a value.
pub(super) fn variables(item: &Item) -> Result<Vec<(String, String)>, Wrong> {
    let Value::Table(entries) = &item.value else {
        return Err(item.expected("a table of strings, like { NO_COLOR = \"1\" }"));
    };
    let variables = entries.iter().map(|Entry { key, at, item }| {
        if let Some(why) = variable(key) {
            return Err(Wrong { at: at.clone(), why });
        }
        let value = text(item).map_err(|Wrong { at, why }| {
            let name = bounded(&sanitised(key), 80);
            let why =
                if matches!(item.value, Value::Text(_)) { why } else { format!("{why}; put it in quotes") };
            Wrong { at, why: format!("`{name}`: {why}") }
        });
        Ok((key.clone(), value?))
    });
    variables.collect()
}
