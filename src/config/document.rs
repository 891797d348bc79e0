//! The text of a configuration and the variables over it, as one tree in which everything knows where it stands.

use super::error::{ConfigError, ConfigFaultKind, ConfigPlace, Faults};
use std::{
    ffi::{OsStr, OsString},
    ops::Range,
    path::Path,
    sync::Arc,
};
use subagents_acp::KNOWN_AGENTS;
use subagents_seam::sanitised;
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

/// What a variable's name begins with, and what stands between its segments.
const SEPARATOR: &str = "__";
const PREFIX: &str = "SUBAGENTS__";
/// No key here is deeper.
const DEEPEST: usize = 8;

/// Something of a configuration. It may be a secret, so it has no `Debug`.
pub(super) struct Item {
    pub(super) at: ConfigPlace,
    pub(super) value: Value,
    /// What stands in the variable, where it is from one: it is a string where nothing else fits.
    pub(super) raw: Option<String>,
}

pub(super) enum Value {
    Text(String),
    Integer(i128),
    Float,
    Boolean(bool),
    Datetime,
    Array(Vec<Item>),
    Table(Vec<Entry>),
}

/// A key and what it holds.
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) at: ConfigPlace,
    pub(super) item: Item,
}

impl Value {
    /// What it is, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Float => "a float",
            Self::Boolean(_) => "a boolean",
            Self::Datetime => "a date",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
        }
    }
}

/// Where a byte of a file stands for people.
struct Lines<'a> {
    file: Arc<Path>,
    text: &'a str,
    /// Where each line begins.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(file: &Path, text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        Self { file: file.into(), text, starts: starts.collect() }
    }

    fn place(&self, span: &Range<usize>) -> ConfigPlace {
        let at = self.text.floor_char_boundary(span.start);
        let line = self.starts.partition_point(|start| *start <= at);
        let start = line.checked_sub(1).and_then(|line| self.starts.get(line)).copied().unwrap_or_default();
        let before = self.text.get(start..at).unwrap_or_default();
        // A byte order mark is no character of the first line.
        let column = before.trim_start_matches('\u{feff}').chars().count() + 1;
        ConfigPlace::Line { file: self.file.clone(), line, column }
    }
}

/// Reads the text of a file.
pub(super) fn read(file: &Path, text: &str) -> Result<Item, ConfigError> {
    let lines = Lines::new(file, text);
    let table = DeTable::parse(text).map_err(|error| {
        let place = error.span().map_or(ConfigPlace::File(lines.file.clone()), |span| lines.place(&span));
        ConfigError::new(ConfigFaultKind::Syntax, place, sanitised(error.message()))
    })?;
    let places = |span: &Range<usize>| lines.place(span);
    let at = ConfigPlace::File(lines.file.clone());
    Ok(Item { at, value: Value::Table(entries(table.into_inner(), &places)), raw: None })
}

/// No file: everything may come from variables.
pub(super) fn empty() -> Item {
    Item { at: ConfigPlace::Whole, value: Value::Table(Vec::new()), raw: None }
}

type Places<'a> = &'a dyn Fn(&Range<usize>) -> ConfigPlace;

fn entries(table: DeTable<'_>, places: Places<'_>) -> Vec<Entry> {
    let mut found: Vec<(Spanned<DeString<'_>>, _)> = table.into_iter().collect();
    // In the order of the text: so providers are registered and faults are told.
    found.sort_by_key(|(key, _)| key.span().start);
    let entry = |(key, value): (Spanned<DeString<'_>>, _)| Entry {
        at: places(&key.span()),
        key: key.into_inner().into_owned(),
        item: item(value, places),
    };
    found.into_iter().map(entry).collect()
}

fn item(value: Spanned<DeValue<'_>>, places: Places<'_>) -> Item {
    let at = places(&value.span());
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        // What is beyond this is beyond every bound that is asked for.
        DeValue::Integer(number) => {
            Value::Integer(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX))
        }
        DeValue::Float(_) => Value::Float,
        DeValue::Boolean(boolean) => Value::Boolean(boolean),
        DeValue::Datetime(_) => Value::Datetime,
        DeValue::Array(items) => Value::Array(items.into_iter().map(|value| item(value, places)).collect()),
        DeValue::Table(table) => Value::Table(entries(table, places)),
    };
    Item { at, value, raw: None }
}

/// Puts the variables `SUBAGENTS__SECTION__KEY` over what there is.
pub(super) fn overridden(
    root: &mut Item,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    faults: &mut Faults,
) {
    let begins = |name: &OsStr| name.as_encoded_bytes().starts_with(PREFIX.as_bytes());
    let mut ours: Vec<_> = variables.into_iter().filter(|(name, _)| begins(name)).collect();
    // The environment has no order of its own.
    ours.sort();
    for (name, value) in ours {
        let at = ConfigPlace::Variable(name.to_string_lossy().into());
        let (Some(name), Some(value)) = (name.to_str(), value.into_string().ok()) else {
            faults.push(ConfigFaultKind::InvalidValue, &at, "it is not UTF-8; set it to text, or unset it");
            continue;
        };
        if let Err((kind, why)) = override_one(root, name, &at, value) {
            faults.push(kind, &at, why);
        }
    }
}

fn override_one(
    root: &mut Item,
    name: &str,
    at: &ConfigPlace,
    value: String,
) -> Result<(), (ConfigFaultKind, String)> {
    let segments = segments(name).ok_or_else(|| {
        let why = "it names no key; write it like SUBAGENTS__DEFAULTS__TIMEOUT=5m";
        (ConfigFaultKind::UnknownKey, why.to_owned())
    })?;
    let mut here = root;
    let mut path = String::new();
    for (depth, segment) in segments.iter().enumerate() {
        let Value::Table(table) = &mut here.value else {
            let why = format!("`{path}` is no table, so nothing can be set in it; unset one of them");
            return Err((ConfigFaultKind::InvalidValue, why));
        };
        let providers = depth == 1 && segments[0] == "providers";
        let found = table.iter().position(|entry| entry.key == *segment);
        let found = found.or_else(|| if providers { spelt(table, segment) } else { None });
        let last = depth + 1 == segments.len();
        if let (true, Some(i)) = (last, found)
            && let ConfigPlace::Variable(other) = &table[i].item.at
        {
            let why = format!("{other} sets the same; unset one of them");
            return Err((ConfigFaultKind::InvalidValue, why));
        }
        let i = found.unwrap_or_else(|| {
            let item = Item { at: at.clone(), value: Value::Table(Vec::new()), raw: None };
            // An agent that is known by its name needs no table to be spelt like.
            let known =
                providers.then(|| KNOWN_AGENTS.iter().find(|agent| is_spelt(agent.name, segment))).flatten();
            let key = known.map_or_else(|| segment.clone(), |agent| agent.name.to_owned());
            table.push(Entry { key, at: at.clone(), item });
            table.len() - 1
        });
        if last {
            table[i].at = at.clone();
        }
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(segment);
        here = &mut table[i].item;
    }
    *here = from_variable(at, value);
    Ok(())
}

/// The keys that a variable's name says. They are in small letters, but for the name of a child's variable.
fn segments(name: &str) -> Option<Vec<String>> {
    let mut segments: Vec<String> = name.strip_prefix(PREFIX)?.split(SEPARATOR).map(str::to_owned).collect();
    for segment in segments.iter_mut().take(3) {
        segment.make_ascii_lowercase();
    }
    if let [providers, _, env, names @ ..] = &mut *segments
        && providers == "providers"
        && env == "env"
        && !names.is_empty()
    {
        // Such a name may hold the separator itself.
        let name = names.join(SEPARATOR);
        segments.truncate(3);
        segments.push(name);
    } else {
        for segment in &mut segments {
            segment.make_ascii_lowercase();
        }
    }
    let known = segments.len() <= DEEPEST && segments.iter().all(|segment| !segment.is_empty());
    known.then_some(segments)
}

/// No shell takes `-` or `.` in the name of a variable, so `_` stands for them where just one provider fits.
fn spelt(providers: &[Entry], segment: &str) -> Option<usize> {
    let fits = |(_, entry): &(usize, &Entry)| is_spelt(&entry.key, segment);
    let mut fitting = providers.iter().enumerate().filter(fits).map(|(i, _)| i);
    fitting.next().filter(|_| fitting.next().is_none())
}

fn is_spelt(name: &str, segment: &str) -> bool {
    name.replace(['-', '.'], "_") == segment
}

fn from_variable(at: &ConfigPlace, text: String) -> Item {
    let parsed = DeValue::parse(&text).ok().map(|value| item(value, &|_| at.clone()).value);
    let value = parsed.unwrap_or_else(|| Value::Text(text.clone()));
    Item { at: at.clone(), value, raw: Some(text) }
}

#[cfg(test)]
mod tests {
    use super::segments;

    #[test]
    fn a_variable_names_a_key() {
        for (name, keys) in [
            ("SUBAGENTS__DEFAULT_PROVIDER", Some(&["default_provider"][..])),
            ("SUBAGENTS__DEFAULTS__TIMEOUT", Some(&["defaults", "timeout"])),
            ("SUBAGENTS__PROVIDERS__WC__MAX_OUTPUT", Some(&["providers", "wc", "max_output"])),
            ("SUBAGENTS__PROVIDERS__WC__ENV__Api__KEY", Some(&["providers", "wc", "env", "Api__KEY"])),
            ("SUBAGENTS__PROVIDERS__WC__ENV", Some(&["providers", "wc", "env"])),
            ("SUBAGENTS__", None),
            ("SUBAGENTS____TIMEOUT", None),
            ("SUBAGENTS__DEFAULTS__", None),
            ("SUBAGENTS__A__B__C__D__E__F__G__H__I", None),
        ] {
            let read = segments(name);
            assert_eq!(
                read.as_deref(),
                keys.map(|keys| keys.iter().map(ToString::to_string).collect::<Vec<_>>()).as_deref(),
                "{name}"
            );
        }
    }
}
