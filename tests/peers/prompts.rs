//! How an agent is told what to do: through the model that it asks, or, where it has none, by the words of
//! `python_agent.py`.

use super::expectations::{Agent, Tool};
use serde_json::{Map, Value, json};

/// Between two pieces of a stream, in milliseconds.
const SLOW: u32 = 100;
/// Longer than anybody waits, in seconds.
const SILENT: u32 = 600;

pub(crate) struct Prompts<'a> {
    /// None where there is no model.
    tool: Option<&'a Tool>,
}

pub(crate) fn of(agent: &Agent) -> Prompts<'_> {
    Prompts { tool: agent.tool.as_ref() }
}

/// Of the answers in [`Prompts::answers_in_turn`].
pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"answer": {"type": "integer"}},
        "required": ["answer"],
        "additionalProperties": false,
    })
}

impl Prompts<'_> {
    pub(crate) fn says(&self, text: &str) -> String {
        match self.tool {
            Some(_) => format!("Please go on. [[reply:{text}]]"),
            None => format!("Please go on. [[say:{text}]]"),
        }
    }

    /// Runs a shell command, asks for it first, and says something when that is over.
    pub(crate) fn uses(&self, command: &str, then: &str) -> String {
        let Some(tool) = self.tool else { return format!("[[ask:{command}]] [[say:{then}]]") };
        let filled = tool.arguments.iter().map(|(name, value)| {
            let value = value.as_str().map(|text| Value::from(text.replace("@COMMAND@", command)));
            (name.clone(), value.unwrap_or_else(|| tool.arguments[name].clone()))
        });
        let arguments = Value::Object(filled.collect::<Map<_, _>>());
        format!("Please go on. [[tool:{} {arguments}]] [[reply:{then}]]", tool.name)
    }

    /// A long text, slowly.
    pub(crate) fn streams(&self, words: &str, times: usize) -> String {
        let text = words.repeat(times);
        match self.tool {
            Some(_) => format!("Please go on. [[reply:{text}]] [[slow:{SLOW}]]"),
            None => format!("[[drip:{SLOW}]] [[say:{text}]]"),
        }
    }

    pub(crate) fn fails(&self) -> String {
        match self.tool {
            Some(_) => "Please go on. [[http:500]] [[reply:no]]".to_owned(),
            None => "[[fail:the model answered 500]]".to_owned(),
        }
    }

    /// The stream of the model breaks after its first piece.
    pub(crate) fn breaks_after(&self, text: &str) -> String {
        match self.tool {
            Some(_) => format!("Please go on. [[reply:{text}]] [[drop]]"),
            None => format!("[[say:{text}]] [[fail:the stream of the model broke]]"),
        }
    }

    /// The stream of the model ends after its first piece as if it were whole. Whoever asks it to go on hears the rest.
    pub(crate) fn is_cut_after(&self, text: &str, rest: &str) -> String {
        match self.tool {
            Some(_) => format!("Please go on. [[reply:{text}]] [[cut:@0]] [[reply:{rest}]]"),
            None => format!("[[say:{text}]] [[fail:the model did not finish]]"),
        }
    }

    pub(crate) fn is_silent(&self) -> String {
        match self.tool {
            Some(_) => format!("Please go on. [[stall:{SILENT}]] [[reply:late]]"),
            None => "[[hang]]".to_owned(),
        }
    }

    /// One of these as JSON for each time that it is asked.
    pub(crate) fn answers_in_turn(&self, values: &[Value]) -> String {
        let each = values.iter().map(|value| match self.tool {
            Some(_) => format!("[[json:{value}]]"),
            None => format!("[[say:{value}]]"),
        });
        let separator = if self.tool.is_some() { " " } else { " [[next]] " };
        format!("Please go on. {}", each.collect::<Vec<_>>().join(separator))
    }
}
