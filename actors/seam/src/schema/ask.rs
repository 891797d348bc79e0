//! Ask, validate, ask again: how a child that only speaks text is brought to answer with a value. Pure.

use super::{SchemaViolation, UnsupportedSchema, answer, check, explain};
use crate::{Diagnostic, SchemaAttempt};
use jsonschema::{Draft, Validator};
use serde_json::Value;
use std::{fmt, num::NonZeroU32, sync::Arc};

/// How often a child is asked where nobody said otherwise, the first time included.
pub const DEFAULT_ATTEMPTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// One delegation with an output schema, to a child that answers with text (SPEC 8.1).
///
/// The provider sends [`ask`](Self::ask) to its child, hands each whole answer to [`submit`](Self::submit), and does what
/// the [`Verdict`] says. There is no I/O and no waiting in it.
///
/// # What counts as the answer
/// 1. The whole text without the white space around it, where that is JSON. A JSON string that holds JSON is a string.
/// 2. Otherwise the content of the one fenced code block (three or more of `` ` `` or `~`), where there is exactly one, it
///    is closed, and its content is JSON; whatever words stand around it.
/// 3. Nothing else: no JSON among words, no block of several.
///
/// Nesting beyond 127 levels is not read. Of a name that an object has twice the last holds. The order of names means
/// nothing.
///
/// # What is told
/// The child, the attempts and the diagnostics get JSON Pointers, what the schema wants there and the kind of what was
/// found, never a value that the child gave: it may be a secret. An answer has at most 20 faults of 400 bytes each, and a
/// word that there are more.
///
/// ```
/// use serde_json::json;
/// use subagents_seam::schema::{DEFAULT_ATTEMPTS, SchemaAsk, Verdict};
///
/// let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}).into();
/// let mut ask = SchemaAsk::new(&schema, DEFAULT_ATTEMPTS)?;
/// assert!(ask.ask("How many?").starts_with("How many?\n\n"));
/// let Verdict::Again(prompt) = ask.submit(r#"{"n": "three"}"#, None) else { panic!("it is no number") };
/// assert!(prompt.contains("/n: expected a whole number, found a string"));
/// assert_eq!(ask.submit("```json\n{\"n\": 3}\n```", None), Verdict::Accepted(json!({"n": 3})));
/// assert_eq!(ask.attempts().len(), 2);
/// # Ok::<(), subagents_seam::UnsupportedSchema>(())
/// ```
pub struct SchemaAsk {
    schema: Arc<Value>,
    validator: Validator,
    instruction: String,
    limit: NonZeroU32,
    attempts: Vec<SchemaAttempt>,
    settled: bool,
    clean: Option<Clean>,
}

/// What is done to a value before anything is made of it.
type Clean = Box<dyn Fn(Value) -> Value + Send + Sync>;

/// What becomes of an answer.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "a provider has to know what to do in each case")]
#[must_use = "the delegation goes on as this says"]
pub enum Verdict {
    /// It matches: the structured value of the result. That it took several attempts shows in
    /// [`SchemaAsk::attempts`].
    Accepted(Value),
    /// It does not: send this to the same child. It holds what was wrong and the whole instruction once more.
    Again(String),
    /// It does not, and the child is not asked again. Nothing of the answer is in the diagnostic; what the child said
    /// belongs into the result as its output, where it counts as partial. The categories:
    ///
    /// | category | when | stop reason |
    /// |---|---|---|
    /// | `schema-truncated` | the answer was [cut](Cut) | `max-tokens` where the child's limit did it, else `error` |
    /// | `schema-not-met` | the attempts are used up | `error` |
    Failed(Diagnostic),
}

/// Who cut an answer short. It is no answer then, whatever of it is there: even what reads like a whole value may be the
/// beginning of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// The child's own token limit.
    TokenLimit,
    /// The provider's bound on output: what came beyond was not kept.
    OutputBound,
}

impl SchemaAsk {
    /// Prepares to ask for a value that matches `schema`, at most `attempts` times, the first included.
    ///
    /// # Errors
    /// [`UnsupportedSchema`] where the schema is outside the [subset](super). The service has refused such a request
    /// before.
    pub fn new(schema: &Arc<Value>, attempts: NonZeroU32) -> Result<Self, UnsupportedSchema> {
        check(schema)?;
        let validator =
            jsonschema::options().with_draft(Draft::Draft202012).build(schema).map_err(|error| {
                let violation = SchemaViolation {
                    path: error.instance_path().to_string(),
                    message: crate::bounded(&error.to_string(), explain::FAULT_BYTES),
                };
                UnsupportedSchema { violations: vec![violation] }
            })?;
        let instruction = format!(
            "Answer with one JSON value that matches the JSON Schema below, and with nothing else: no words before or \
             after it. Only this value counts as your answer.\n\n{schema}"
        );
        let schema = schema.clone();
        Ok(Self {
            schema,
            validator,
            instruction,
            limit: attempts,
            attempts: Vec::new(),
            settled: false,
            clean: None,
        })
    }

    /// Puts each value through `clean` before it is judged, told of, or given out: what is written in JSON with escapes may be
    /// a secret once it is read.
    #[must_use]
    pub fn cleaned_by(mut self, clean: impl Fn(Value) -> Value + Send + Sync + 'static) -> Self {
        self.clean = Some(Box::new(clean));
        self
    }

    /// What the child is told about its answer, the schema included: for a prompt of several blocks, as one more.
    pub fn instruction(&self) -> &str {
        &self.instruction
    }

    /// `prompt` with the [instruction](Self::instruction) below it.
    pub fn ask(&self, prompt: &str) -> String {
        format!("{}\n\n{}", prompt.trim_end(), self.instruction)
    }

    /// Judges an answer that is finished, or was cut.
    ///
    /// Each call is one attempt, also where the answer is that of the attempt before. After an `Accepted` or a `Failed`
    /// nothing counts any more: the answer is `Failed`, and no attempt.
    pub fn submit(&mut self, answer: &str, cut: Option<Cut>) -> Verdict {
        if self.settled {
            let text = "the child was not asked any more when it gave this answer";
            return Verdict::Failed(Diagnostic::fixed("schema-not-met", text));
        }
        if let Some(cut) = cut {
            return self.truncated(cut);
        }
        let read = answer::read(answer).map(|value| match &self.clean {
            Some(clean) => clean(value),
            None => value,
        });
        let errors = match read {
            Ok(value) if self.validator.is_valid(&value) => {
                self.attempts.push(SchemaAttempt::default());
                self.settled = true;
                return Verdict::Accepted(value);
            }
            Ok(value) => {
                let mut errors = explain::explain(&self.schema, &value);
                if errors.is_empty() {
                    errors.push("(root): does not match the schema".to_owned());
                }
                errors
            }
            Err(error) => vec![error],
        };
        let verdict = self.rejected(&errors);
        self.attempts.push(SchemaAttempt { errors });
        verdict
    }

    /// Every attempt so far with what was wrong with it, for
    /// [`Details::schema_attempts`](crate::Details::schema_attempts), whatever the end: a value that was accepted late
    /// may be a mere placeholder.
    pub fn attempts(&self) -> &[SchemaAttempt] {
        &self.attempts
    }

    fn truncated(&mut self, cut: Cut) -> Verdict {
        self.settled = true;
        let text = match cut {
            Cut::TokenLimit => {
                "the answer was cut by the child's token limit; allow it more, or ask for a smaller value"
            }
            Cut::OutputBound => {
                "the answer was cut at the bound on output; raise it, or ask for a smaller value"
            }
        };
        self.attempts.push(SchemaAttempt { errors: vec![text.to_owned()] });
        Verdict::Failed(Diagnostic::fixed("schema-truncated", text))
    }

    fn rejected(&mut self, errors: &[String]) -> Verdict {
        let number = self.attempts.len() + 1;
        let limit = self.limit.get();
        if u32::try_from(number).is_ok_and(|number| number < limit) {
            let errors = errors.join("\n- ");
            let instruction = &self.instruction;
            return Verdict::Again(format!(
                "Your answer was not accepted (attempt {number} of {limit}):\n- {errors}\n\n{instruction}"
            ));
        }
        self.settled = true;
        let attempts = if limit == 1 { "the one attempt".to_owned() } else { format!("{limit} attempts") };
        let errors = errors.join("\n");
        Verdict::Failed(Diagnostic::new(
            "schema-not-met",
            &format!("no answer matched the output schema in {attempts}; of the last one:\n{errors}"),
        ))
    }
}

impl fmt::Debug for SchemaAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchemaAsk")
            .field("limit", &self.limit)
            .field("attempts", &self.attempts)
            .field("settled", &self.settled)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
