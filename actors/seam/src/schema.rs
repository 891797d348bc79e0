//! The enforced subset of JSON Schema (SPEC 8.1).
//!
//! An object at the root; one `type` each; `properties`, `required` (declared ones only), a boolean
//! `additionalProperties`, `items`, scalar `enum` and `const`, `oneOf` of at least two; and the annotations `title`,
//! `description`, `default`, `examples`. Everything else is refused, all of it at once, before a child exists.
//!
//! With the feature `schema` there is also what a provider needs whose child answers with text: `SchemaAsk` tells the child
//! of the schema, validates its answers, and asks again.

#[cfg(feature = "schema")]
mod answer;
#[cfg(feature = "schema")]
mod ask;
#[cfg(feature = "schema")]
mod explain;

#[cfg(feature = "schema")]
pub use ask::{Cut, DEFAULT_ATTEMPTS, SchemaAsk, Verdict};

use serde_json::{Map, Value};
use std::{collections::HashSet, fmt};

/// Nesting beyond this is refused: it would only serve to exhaust a stack.
const DEEPEST: usize = 64;
/// Violations beyond this are counted, not listed.
const MOST: usize = 100;

/// One place where a schema leaves the subset.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchemaViolation {
    /// A JSON Pointer into the schema; empty for its root.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for SchemaViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "(root)" } else { &self.path };
        write!(f, "{path}: {}", self.message)
    }
}

/// A schema outside the subset, with every violation (SPEC 8.1).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnsupportedSchema {
    /// All of them, in document order; the list stops at a hundred.
    pub violations: Vec<SchemaViolation>,
}

impl fmt::Display for UnsupportedSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the output schema is outside the supported subset: ")?;
        for (i, violation) in self.violations.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{violation}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnsupportedSchema {}

/// Checks a schema against the subset.
///
/// # Errors
/// [`UnsupportedSchema`] lists every violation, not only the first.
///
/// ```
/// use serde_json::json;
/// let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
/// assert!(subagents_seam::schema::check(&schema).is_ok());
/// let wrong = json!({"type": "object", "pattern": "x", "properties": {"n": {"type": ["integer", "null"]}}});
/// assert_eq!(subagents_seam::schema::check(&wrong).unwrap_err().violations.len(), 2);
/// ```
pub fn check(schema: &Value) -> Result<(), UnsupportedSchema> {
    let mut checker = Checker { violations: Vec::new(), path: String::new() };
    match schema.as_object().and_then(|root| root.get("type")) {
        Some(kind) if kind == "object" => {}
        _ => checker.report("the root must be an object: {\"type\": \"object\", …}"),
    }
    checker.schema(schema, 0);
    if checker.violations.is_empty() {
        Ok(())
    } else {
        Err(UnsupportedSchema { violations: checker.violations })
    }
}

struct Checker {
    violations: Vec<SchemaViolation>,
    path: String,
}

impl Checker {
    fn report(&mut self, message: impl Into<String>) {
        if self.violations.len() < MOST {
            self.violations.push(SchemaViolation { path: self.path.clone(), message: message.into() });
        }
    }

    fn within(&mut self, step: &str, check: impl FnOnce(&mut Self)) {
        let end = self.path.len();
        self.path.push('/');
        self.path.push_str(&step.replace('~', "~0").replace('/', "~1"));
        check(self);
        self.path.truncate(end);
    }

    fn schema(&mut self, schema: &Value, depth: usize) {
        if depth > DEEPEST {
            return self.report(format!("nested deeper than {DEEPEST} levels"));
        }
        let Some(schema) = schema.as_object() else { return self.report("a schema must be an object") };
        let kind = self.kind(schema);
        for (keyword, value) in schema {
            self.within(keyword, |this| this.keyword(schema, kind, keyword, value, depth));
        }
    }

    /// The single `type`; a schema without one needs `enum`, `const` or `oneOf` to say what it means.
    fn kind<'s>(&mut self, schema: &'s Map<String, Value>) -> Option<&'s str> {
        match schema.get("type") {
            Some(Value::String(kind)) => Some(kind),
            Some(_) => None,
            None => {
                if !["enum", "const", "oneOf"].iter().any(|keyword| schema.contains_key(*keyword)) {
                    self.report("needs a `type`, or one of `enum`, `const`, `oneOf`");
                }
                None
            }
        }
    }

    fn keyword(
        &mut self,
        schema: &Map<String, Value>,
        kind: Option<&str>,
        keyword: &str,
        value: &Value,
        depth: usize,
    ) {
        match keyword {
            "type" => match value.as_str() {
                Some("object" | "array" | "string" | "number" | "integer" | "boolean" | "null") => {}
                Some(other) => self.report(format!("unknown type `{}`", crate::bounded(other, 60))),
                None => self.report("must be a single type name"),
            },
            "properties" => {
                self.belongs_to(kind, "object");
                let Some(properties) = value.as_object() else {
                    return self.report("must be an object of schemas");
                };
                for (name, property) in properties {
                    self.within(name, |this| this.schema(property, depth + 1));
                }
            }
            "required" => {
                self.belongs_to(kind, "object");
                self.required(schema, value);
            }
            "additionalProperties" => {
                self.belongs_to(kind, "object");
                if !value.is_boolean() {
                    self.report("must be true or false");
                }
            }
            "items" => {
                self.belongs_to(kind, "array");
                self.schema(value, depth + 1);
            }
            "enum" => match value.as_array() {
                Some(values) if !values.is_empty() => {
                    for (i, value) in values.iter().enumerate().filter(|(_, value)| !is_scalar(value)) {
                        self.within(&i.to_string(), |this| {
                            this.report(format!("must be a scalar, not {}", name_of(value)));
                        });
                    }
                }
                _ => self.report("must be a list of at least one scalar"),
            },
            "const" if !is_scalar(value) => self.report(format!("must be a scalar, not {}", name_of(value))),
            "oneOf" => match value.as_array() {
                Some(options) if options.len() >= 2 => {
                    for (i, option) in options.iter().enumerate() {
                        self.within(&i.to_string(), |this| this.schema(option, depth + 1));
                    }
                }
                _ => self.report("must be a list of at least two schemas"),
            },
            "title" | "description" if !value.is_string() => self.report("must be a string"),
            "examples" if !value.is_array() => self.report("must be a list"),
            "const" | "title" | "description" | "default" | "examples" => {}
            other => self.report(format!("the keyword `{}` is not supported", crate::bounded(other, 60))),
        }
    }

    fn required(&mut self, schema: &Map<String, Value>, value: &Value) {
        let Some(names) = value.as_array() else { return self.report("must be a list of names") };
        let declared = schema.get("properties").and_then(Value::as_object);
        let mut listed = HashSet::new();
        for name in names {
            match name.as_str() {
                Some(name) if !listed.insert(name) => {
                    self.report(format!("`{}` is listed twice", crate::bounded(name, 60)));
                }
                Some(name) if declared.is_some_and(|properties| properties.contains_key(name)) => {}
                Some(name) => {
                    self.report(format!("`{}` is required but not declared", crate::bounded(name, 60)));
                }
                None => self.report(format!("a name must be a string, not {}", name_of(name))),
            }
        }
    }

    fn belongs_to(&mut self, kind: Option<&str>, owner: &str) {
        if kind.is_none_or(|kind| kind != owner) {
            self.report(format!("belongs to a schema of type `{owner}`"));
        }
    }
}

fn is_scalar(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use serde_json::{Value, json};

    #[test]
    fn spec_8_1_the_subset_is_accepted() {
        for schema in [
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}, "required": ["a"], "additionalProperties": false}),
            json!({"type": "object", "title": "t", "description": "d", "default": {}, "examples": [{}], "properties": {"k": {"enum": ["a", 1, null, true]}, "c": {"const": "x"}}}),
            json!({"type": "object", "properties": {"u": {"oneOf": [{"type": "string"}, {"type": "object", "properties": {}}]}}}),
        ] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
        }
    }

    #[test]
    fn spec_8_1_every_violation_is_listed() {
        let cases: [(Value, &[&str]); 15] = [
            (json!(true), &["", ""]),
            (json!({"type": "array", "items": {"type": "string"}}), &[""]),
            (json!({"type": "object", "properties": {"a": {}}}), &["/properties/a"]),
            (
                json!({"type": "object", "properties": {"a/b": {"type": ["string", "null"]}}}),
                &["/properties/a~1b/type"],
            ),
            (json!({"type": "object", "required": ["x", 3]}), &["/required", "/required"]),
            (
                json!({"type": "object", "properties": {"x": {"type": "null"}}, "required": ["x", "x"]}),
                &["/required"],
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                &["/additionalProperties"],
            ),
            (json!({"type": "object", "properties": {"a": {"enum": []}}}), &["/properties/a/enum"]),
            (
                json!({"type": "object", "properties": {"a": {"enum": [{}, "x", []]}}}),
                &["/properties/a/enum/0", "/properties/a/enum/2"],
            ),
            (json!({"type": "object", "properties": {"a": {"const": {}}}}), &["/properties/a/const"]),
            (
                json!({"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}]}}}),
                &["/properties/a/oneOf"],
            ),
            (
                json!({"type": "object", "$ref": "#", "anyOf": [], "format": "x"}),
                &["/$ref", "/anyOf", "/format"],
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string", "items": {"type": "string"}, "pattern": "x"}}}),
                &["/properties/a/items", "/properties/a/pattern"],
            ),
            (json!({"type": "object", "title": 3, "examples": "x"}), &["/examples", "/title"]),
            (json!({"type": "object", "properties": {"a": {"type": "strnig"}}}), &["/properties/a/type"]),
        ];
        for (schema, wanted) in cases {
            let mut paths: Vec<_> =
                check(&schema).expect_err("refused").violations.into_iter().map(|v| v.path).collect();
            paths.sort();
            assert_eq!(paths, wanted, "{schema}");
        }
    }

    #[test]
    fn a_schema_made_to_exhaust_the_stack_is_refused() {
        let mut schema = json!({"type": "string"});
        for _ in 0..100 {
            schema = json!({"type": "array", "items": schema});
        }
        let error = check(&json!({"type": "object", "properties": {"a": schema}})).expect_err("refused");
        assert!(error.to_string().contains("nested deeper"), "{error}");
    }
}
