//! Why a value does not match a schema of the subset: by path and by what is wanted there, for whoever is to do better.
//!
//! Whether a value matches is for the validator to say. Its own errors are no use here: it gathers all of them, with copies
//! of the values, and a child may send a million. This walk ends at the first few, copies nothing, and tells no value of
//! the child's.

use super::name_of;
use crate::text;
use serde_json::{Map, Number, Value};
use std::{fmt::Write, mem};

/// As many faults are told; that there are more is told, too.
pub(super) const MOST: usize = 20;
/// As many of the nearest alternative of a `oneOf`.
const MOST_NEAREST: usize = 5;
/// One fault is no longer, its path included.
pub(super) const FAULT_BYTES: usize = 400;
const PATH_BYTES: usize = 200;
const NAME_BYTES: usize = 100;
const WANTED_BYTES: usize = 150;

/// The faults of `value`, each as `/json/pointer: what is wanted`. Empty where it matches.
pub(super) fn explain(schema: &Value, value: &Value) -> Vec<String> {
    let mut walk = Walk { faults: Vec::new(), most: MOST + 1, path: String::new() };
    walk.value(schema, value);
    let more = walk.faults.len() > MOST;
    let mut faults: Vec<_> = walk.faults.into_iter().take(MOST).map(|fault| fault.text).collect();
    if more {
        faults.push("there are more, which are not listed".to_owned());
    }
    faults
}

struct Fault {
    text: String,
    /// How long the path to it is.
    at: usize,
    weight: Weight,
}

/// How far from an alternative a value is that has the fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Detail,
    /// It is no listed value: what tells alternatives apart.
    Choice,
    /// It is of another kind altogether.
    Kind,
}

struct Walk {
    faults: Vec<Fault>,
    most: usize,
    path: String,
}

impl Walk {
    fn is_full(&self) -> bool {
        self.faults.len() >= self.most
    }

    fn report(&mut self, weight: Weight, message: &str) {
        if !self.is_full() {
            let path = if self.path.is_empty() { "(root)" } else { &self.path };
            let fault = format!("{}: {message}", text::bounded(path, PATH_BYTES));
            self.faults.push(Fault { text: text::bounded(&fault, FAULT_BYTES), at: self.path.len(), weight });
        }
    }

    fn within(&mut self, step: &str, walk: impl FnOnce(&mut Self)) {
        let end = self.path.len();
        self.path.push('/');
        self.path.push_str(&name(step).replace('~', "~0").replace('/', "~1"));
        walk(self);
        self.path.truncate(end);
    }

    fn value(&mut self, schema: &Value, value: &Value) {
        let Some(schema) = schema.as_object() else { return };
        if let Some(kind) = schema.get("type").and_then(Value::as_str)
            && !is_of(kind, value)
        {
            return self
                .report(Weight::Kind, &format!("expected {}, found {}", called(kind), found(kind, value)));
        }
        if let Some(Value::Array(options)) = schema.get("enum")
            && !options.iter().any(|option| is_same(option, value))
        {
            let wanted = list(options.iter().map(Value::to_string));
            self.report(Weight::Choice, &format!("expected one of {wanted}, found {}", other(value)));
        }
        if let Some(wanted) = schema.get("const")
            && !is_same(wanted, value)
        {
            let wanted = text::bounded(&wanted.to_string(), WANTED_BYTES);
            self.report(Weight::Choice, &format!("expected {wanted}, found {}", other(value)));
        }
        if let Some(Value::Array(options)) = schema.get("oneOf") {
            self.one_of(options, value);
        }
        match value {
            Value::Object(members) => self.object(schema, members),
            Value::Array(items) => {
                let Some(item) = schema.get("items") else { return };
                for (i, value) in items.iter().enumerate() {
                    if self.is_full() {
                        break;
                    }
                    let end = self.path.len();
                    let _ = write!(self.path, "/{i}");
                    self.value(item, value);
                    self.path.truncate(end);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn object(&mut self, schema: &Map<String, Value>, members: &Map<String, Value>) {
        let declared = schema.get("properties").and_then(Value::as_object);
        for missing in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            let Some(missing) = missing.as_str().filter(|name| !members.contains_key(*name)) else {
                continue;
            };
            let kind = declared.and_then(|declared| declared.get(missing)?.get("type")?.as_str());
            let wanted = kind.map(|kind| format!("; expected {}", called(kind))).unwrap_or_default();
            self.within(missing, |this| this.report(Weight::Detail, &format!("missing{wanted}")));
        }
        for (name, property) in declared.into_iter().flatten() {
            if self.is_full() {
                return;
            }
            if let Some(value) = members.get(name) {
                self.within(name, |this| this.value(property, value));
            }
        }
        if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
            let is_declared = |name: &str| declared.is_some_and(|declared| declared.contains_key(name));
            for surplus in members.keys().filter(|name| !is_declared(name)) {
                if self.is_full() {
                    return;
                }
                let known =
                    list(declared.into_iter().flatten().map(|(known, _)| format!("`{}`", name(known))));
                let known = if known.is_empty() { "none".to_owned() } else { known };
                self.within(surplus, |this| {
                    this.report(Weight::Detail, &format!("not allowed here; the properties are {known}"));
                });
            }
        }
    }

    fn one_of(&mut self, options: &[Value], value: &Value) {
        let mut matching = Vec::new();
        let mut nearest: Option<(_, usize, Vec<Fault>)> = None;
        let outer = (mem::take(&mut self.faults), mem::replace(&mut self.most, MOST_NEAREST));
        for (i, option) in options.iter().enumerate() {
            self.value(option, value);
            let faults = mem::take(&mut self.faults);
            // A member of another kind is a slip in the right alternative.
            let weigh = |fault: &Fault| match fault.weight {
                Weight::Kind if fault.at > self.path.len() => Weight::Detail,
                Weight::Kind | Weight::Choice | Weight::Detail => fault.weight,
            };
            let Some(heaviest) = faults.iter().map(weigh).max() else {
                matching.push(i);
                continue;
            };
            let distance = (heaviest, faults.len());
            if nearest.as_ref().is_none_or(|(least, ..)| distance < *least) {
                nearest = Some((distance, i, faults));
            }
        }
        (self.faults, self.most) = outer;
        match (&*matching, nearest) {
            ([_], _) | ([], None) => {}
            ([], Some(((weight, _), i, faults))) => {
                let none = format!("matches none of the {} alternatives of `oneOf`", options.len());
                self.report(weight, &format!("{none}; the nearest is /oneOf/{i}, and for that one:"));
                let room = self.most.saturating_sub(self.faults.len());
                self.faults.extend(faults.into_iter().take(room));
            }
            (several, _) => {
                let which = list(several.iter().map(|i| format!("/oneOf/{i}")));
                self.report(Weight::Detail, &format!("matches {which}; exactly one alternative must match"));
            }
        }
    }
}

/// A name as it may be shown: a child can have given it.
fn name(name: &str) -> String {
    text::sanitised(&text::bounded(name, NAME_BYTES)).replace(['\n', '\t'], " ")
}

/// As many as there is room for.
fn list(items: impl Iterator<Item = String>) -> String {
    let mut list = String::new();
    for item in items {
        if !list.is_empty() {
            list.push_str(", ");
        }
        list.push_str(&item);
        if list.len() > WANTED_BYTES {
            break;
        }
    }
    text::bounded(&list, WANTED_BYTES)
}

fn called(kind: &str) -> &'static str {
    match kind {
        "object" => "an object",
        "array" => "a list",
        "string" => "a string",
        "number" => "a number",
        "integer" => "a whole number",
        "boolean" => "a boolean",
        _ => "null",
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => kind == "number" || (kind == "integer" && is_whole(number)),
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}

/// 1.0 is as whole as 1.
fn is_whole(number: &Number) -> bool {
    number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn found(kind: &str, value: &Value) -> &'static str {
    if kind == "integer" && value.is_number() {
        "a number with a fraction"
    } else if value.as_str().is_some_and(|text| text.trim_start().starts_with(['{', '['])) {
        "a string; JSON inside a string is not unpacked"
    } else {
        name_of(value)
    }
}

fn other(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "another boolean",
        Value::Number(_) => "another number",
        Value::String(_) => "another string",
        Value::Array(_) | Value::Object(_) => name_of(value),
    }
}

/// Whether the scalar `wanted` is given. 1 and 1.0 are one number.
fn is_same(wanted: &Value, given: &Value) -> bool {
    match (wanted, given) {
        (Value::Number(wanted), Value::Number(given)) => {
            let whole = |number: &Number| number.is_i64() || number.is_u64();
            wanted == given || (!(whole(wanted) && whole(given)) && wanted.as_f64() == given.as_f64())
        }
        _ => wanted == given,
    }
}
