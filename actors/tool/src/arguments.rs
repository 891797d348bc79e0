//! What a model gave. Pure.

use serde_json::{Map, Value, json};
use subagents_seam::{ToolError, bounded, sanitised};

/// As much of a model's mistake is said again.
const SHOWN: usize = 80;

/// The arguments of `subagent` (SPEC 12.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delegation {
    pub(crate) description: String,
    pub(crate) prompt: String,
}

impl Delegation {
    pub(crate) fn schema(prompt: &str) -> Value {
        json!({
            "type": "object",
            "properties": {
                "description": {
                    "type": "string",
                    "description": "A name for the task, of three to five words. People see it; the subagent does not.",
                },
                "prompt": {"type": "string", "description": prompt},
            },
            "required": ["description", "prompt"],
            "additionalProperties": false,
        })
    }

    pub(crate) fn read(input: Value) -> Result<Self, ToolError> {
        let mut arguments = Arguments::of(input)?;
        let description = arguments.text("description");
        let prompt = arguments.text("prompt");
        // SPEC 12.4: that the schema does not have it is not enough.
        if let Some(background) = arguments.rest.remove("run_in_background")
            && background != Value::Bool(false)
        {
            arguments.wrong.push("`run_in_background` is not offered: each call waits for its answer; to work in parallel, make several calls at once".to_owned());
        }
        arguments.close(&["description", "prompt"])?;
        Ok(Self { description, prompt })
    }
}

/// The arguments of `subagent_output`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) run: String,
    pub(crate) offset: usize,
}

impl Reading {
    pub(crate) fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "run_id": {"type": "string", "description": "The run, as its answer names it."},
                "offset": {"type": "integer", "minimum": 0, "description": "The byte to begin at [default: 0]."},
            },
            "required": ["run_id"],
            "additionalProperties": false,
        })
    }

    pub(crate) fn read(input: Value) -> Result<Self, ToolError> {
        let mut arguments = Arguments::of(input)?;
        let run = arguments.text("run_id");
        let offset = match arguments.rest.remove("offset") {
            None | Some(Value::Null) => 0,
            Some(offset) => whole(&offset).unwrap_or_else(|| {
                arguments.wrong.push("`offset` is a whole number of bytes, from 0 on".to_owned());
                0
            }),
        };
        arguments.close(&["run_id", "offset"])?;
        Ok(Self { run, offset })
    }
}

/// SPEC 23.10. Models write `3.0`, too.
fn whole(value: &Value) -> Option<usize> {
    const MOST: f64 = 9_007_199_254_740_992.0;
    let number = value.as_number()?;
    if let Some(number) = number.as_u64() {
        return usize::try_from(number).ok();
    }
    let number = number.as_f64().filter(|number| number.fract() == 0.0 && (0.0..MOST).contains(number))?;
    if number.is_sign_negative() {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole and in range, just checked"
    )]
    Some(number as usize)
}

/// Arguments, of which every one is taken or refused, and all that is wrong told at once.
struct Arguments {
    rest: Map<String, Value>,
    wrong: Vec<String>,
}

impl Arguments {
    fn of(input: Value) -> Result<Self, ToolError> {
        match input {
            Value::Object(rest) => Ok(Self { rest, wrong: Vec::new() }),
            Value::Null => Ok(Self { rest: Map::new(), wrong: Vec::new() }),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(ToolError::new("The arguments have to be an object. Nothing was started; call again."))
            }
        }
    }

    /// A text that has something in it.
    fn text(&mut self, name: &str) -> String {
        match self.rest.remove(name) {
            Some(Value::String(text)) if !text.trim().is_empty() => return text,
            Some(Value::String(_)) => self.wrong.push(format!("`{name}` is blank")),
            None | Some(Value::Null) => self.wrong.push(format!("`{name}` is missing")),
            Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                self.wrong.push(format!("`{name}` has to be a text"));
            }
        }
        String::new()
    }

    fn close(mut self, known: &[&str]) -> Result<(), ToolError> {
        let unknown = self.rest.keys().take(5).map(|key| {
            let key = bounded(&sanitised(key).replace(['\n', '\t'], " "), SHOWN);
            format!("`{key}` is not known; it takes {}", known.join(", "))
        });
        self.wrong.extend(unknown);
        if self.wrong.is_empty() {
            return Ok(());
        }
        let wrong = self.wrong.join("; ");
        Err(ToolError::new(format!("The arguments are wrong: {wrong}. Nothing was started; call again.")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spec_12_1_description_and_prompt_are_required_and_all_that_is_wrong_is_told() {
        let read = |input| Delegation::read(input).map_err(|error| error.text().to_owned());
        assert_eq!(
            read(json!({"description": "count words", "prompt": "count"})),
            Ok(Delegation { description: "count words".to_owned(), prompt: "count".to_owned() })
        );
        for (input, parts) in [
            (json!({}), &["`description` is missing", "`prompt` is missing"][..]),
            (json!(null), &["`description` is missing"]),
            (json!([]), &["have to be an object"]),
            (
                json!({"description": " ", "prompt": 7}),
                &["`description` is blank", "`prompt` has to be a text"],
            ),
            (
                json!({"description": "x", "prompt": "y", "agent\n": 1}),
                &["`agent ` is not known; it takes description, prompt"],
            ),
        ] {
            let error = read(input.clone()).expect_err("it is wrong");
            assert!(parts.iter().all(|part| error.contains(part)), "{input}: {error}");
            assert!(error.contains("Nothing was started") || parts.len() == 1, "{error}");
        }
    }

    #[test]
    fn spec_12_4_a_background_that_is_forced_is_an_error() {
        let with = |background| json!({"description": "x", "prompt": "y", "run_in_background": background});
        assert!(Delegation::read(with(json!(false))).is_ok());
        for background in [json!(true), json!("true"), json!(1)] {
            let error = Delegation::read(with(background)).expect_err("it is not offered");
            assert!(error.text().contains("`run_in_background` is not offered"), "{error}");
        }
    }

    #[test]
    fn spec_23_10_an_offset_is_a_whole_number() {
        let read = |offset| {
            Reading::read(json!({"run_id": "x", "offset": offset})).map(|reading| reading.offset).ok()
        };
        for (offset, wanted) in [
            (json!(0), Some(0)),
            (json!(3), Some(3)),
            (json!(3.0), Some(3)),
            (json!(null), Some(0)),
            (json!(-1), None),
            (json!(-0.0), None),
            (json!(1.5), None),
            (json!("3"), None),
            (json!(1e300), None),
        ] {
            assert_eq!(read(offset.clone()), wanted, "{offset}");
        }
        assert_eq!(Reading::read(json!({"run_id": "x"})).map(|reading| reading.offset).ok(), Some(0));
    }
}
