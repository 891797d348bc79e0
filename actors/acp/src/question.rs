//! An agent's question whether it may use a tool: read with patience, answered with one of its options. Pure.

use agent_client_protocol_schema::v1::{
    RequestPermissionOutcome, RequestPermissionResponse, SelectedPermissionOutcome,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::permission::{Decision, PermissionOption};

/// Of what is larger only the beginning of the matter is read: as a value it would take a hundred times its room.
pub(crate) const LONGEST: usize = 256 * 1024;
/// As many options are read.
const OPTIONS: usize = 64;

/// What is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Question {
    /// The id of the tool call.
    pub(crate) call: String,
    /// The tool's name, where the agent tells it.
    pub(crate) name: Option<String>,
    pub(crate) kind: String,
    pub(crate) title: Option<String>,
    pub(crate) input: Option<Value>,
    pub(crate) options: Vec<PermissionOption>,
    /// What the tool would be given is too large to be kept.
    pub(crate) is_large: bool,
}

/// What is read of a large question: all but what the tool would be given.
#[derive(Deserialize)]
struct Large<'a> {
    #[serde(borrow, rename = "toolCall", default)]
    call: Option<LargeCall<'a>>,
    #[serde(borrow)]
    options: &'a RawValue,
}

#[derive(Deserialize)]
struct LargeCall<'a> {
    #[serde(borrow, rename = "toolCallId", default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
}

/// The same as a value without what is large.
fn small(raw: &str) -> Option<Value> {
    let Large { call, options } = serde_json::from_str(raw).ok()?;
    let value = |raw: Option<&RawValue>| {
        let raw = raw.filter(|raw| raw.get().len() <= LONGEST / 4)?;
        serde_json::from_str::<Value>(raw.get()).ok()
    };
    let options = value(Some(options))?;
    let call = call.map(
        |call| json!({"toolCallId": value(call.id), "kind": value(call.kind), "name": value(call.name)}),
    );
    Some(json!({"toolCall": call, "options": options}))
}

impl Question {
    /// Of the parameters of the request. Only without a list of options is it none: a kind that is new, or an option that is
    /// odd, must not keep the policy from being asked.
    pub(crate) fn read(params: Option<&RawValue>) -> Option<Self> {
        let raw = params?.get();
        let is_large = raw.len() > LONGEST;
        let params = if is_large { small(raw)? } else { serde_json::from_str(raw).ok()? };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let call = &params["toolCall"];
        let options = params["options"].as_array()?.iter().filter_map(|option| {
            let id = text(&option["optionId"])?;
            let kind = text(&option["kind"]).unwrap_or_else(|| "other".to_owned());
            let name = text(&option["name"]).unwrap_or_else(|| id.clone());
            Some(PermissionOption { id, name, kind })
        });
        Some(Self {
            call: text(&call["toolCallId"]).unwrap_or_default(),
            name: text(&call["name"]).or_else(|| text(&call["_meta"]["claudeCode"]["toolName"])),
            kind: text(&call["kind"]).unwrap_or_else(|| "other".to_owned()),
            title: text(&call["title"]),
            input: Some(&call["rawInput"]).filter(|input| !input.is_null()).cloned(),
            options: options.take(OPTIONS).collect(),
            is_large,
        })
    }

    /// The answer that a decision is.
    pub(crate) fn answer(&self, decision: &Decision) -> Answered {
        let of = |kinds: &[&str]| {
            kinds.iter().find_map(|kind| self.options.iter().find(|option| option.kind == *kind))
        };
        let (option, denied) = match decision {
            Decision::Allow => {
                let option = of(&["allow_once", "allow_always"]);
                (option, option.is_none().then(|| "the agent offers no option to allow it".to_owned()))
            }
            Decision::Select(id) => {
                let option = self.options.iter().find(|option| option.id == *id);
                let denied = match option.map(|option| &*option.kind) {
                    None => Some("an option was selected that the agent does not offer".to_owned()),
                    Some(kind) if kind.starts_with("reject") => Some("rejected by the callback".to_owned()),
                    Some(_) => None,
                };
                (option, denied)
            }
            Decision::Reject(reason) => (None, Some(reason.clone())),
        };
        let option = option.or_else(|| of(&["reject_once"]));
        let outcome = option.map_or(RequestPermissionOutcome::Cancelled, |option| {
            RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.id.clone()))
        });
        Answered { response: RequestPermissionResponse::new(outcome), denied }
    }
}

/// What goes back to the agent, and whether, and why, it is a refusal.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) response: RequestPermissionResponse,
    pub(crate) denied: Option<String>,
}

/// The answer to whatever is asked of a turn that is cancelled, as the protocol wants it.
pub(crate) fn cancelled() -> RequestPermissionResponse {
    RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(params: &Value) -> Option<Question> {
        Question::read(Some(&serde_json::value::to_raw_value(params).unwrap()))
    }

    fn selected(options: &[(&str, &str)], decision: &Decision) -> (String, bool) {
        let options: Vec<_> =
            options.iter().map(|(id, kind)| json!({"optionId": id, "name": id, "kind": kind})).collect();
        let question = read(&json!({"toolCall": {"toolCallId": "t"}, "options": options})).unwrap();
        let answered = question.answer(decision);
        let response = serde_json::to_value(&answered.response).unwrap();
        let outcome = &response["outcome"];
        let id = outcome["optionId"].as_str().or(outcome["outcome"].as_str()).unwrap();
        (id.to_owned(), answered.denied.is_some())
    }

    #[test]
    fn spec_18_3_a_decision_becomes_one_of_the_options_or_cancelled() {
        let all = [("A", "allow_always"), ("a", "allow_once"), ("R", "reject_always"), ("r", "reject_once")];
        let reject = Decision::reject("no");
        for (options, decision, wanted) in [
            (&all[..], &Decision::Allow, ("a", false)),
            (&all[..1], &Decision::Allow, ("A", false)),
            (&all[2..], &Decision::Allow, ("r", true)),
            (&[], &Decision::Allow, ("cancelled", true)),
            (&all[..], &reject, ("r", true)),
            // It would outlive the run.
            (&all[..3], &reject, ("cancelled", true)),
            (&all[..], &Decision::Select("A".into()), ("A", false)),
            (&all[..], &Decision::Select("R".into()), ("R", true)),
            (&all[..], &Decision::Select("x".into()), ("r", true)),
            (&all[..2], &Decision::Select("x".into()), ("cancelled", true)),
            (&[("s", "allow_session"), ("r", "reject_once")], &reject, ("r", true)),
            (&[("s", "allow_session")], &Decision::Select("s".into()), ("s", false)),
        ] {
            assert_eq!(
                selected(options, decision),
                (wanted.0.to_owned(), wanted.1),
                "{options:?} {decision:?}"
            );
        }
    }

    #[test]
    fn a_large_question_is_answered_like_any_other() {
        let question = read(&json!({
            "toolCall": {"toolCallId": "t", "kind": "edit", "rawInput": "x".repeat(LONGEST)},
            "options": [{"optionId": "a", "name": "A", "kind": "allow_once"}],
        }))
        .unwrap();
        assert_eq!((&*question.call, &*question.kind, &question.input), ("t", "edit", &None));
        assert!(question.is_large && question.options.len() == 1);
    }

    #[test]
    fn what_is_odd_in_a_question_is_passed_over() {
        let question = read(&json!({
            "toolCall": {"toolCallId": 7, "kind": "teleport", "title": null, "rawInput": {"a": 1}},
            "options": [7, {"optionId": "x"}, {"kind": "allow_once"}, {"optionId": "y", "kind": "allow_once", "name": "Y"}],
        }))
        .unwrap();
        assert_eq!((&*question.call, &*question.kind, &question.title), ("", "teleport", &None));
        let ids: Vec<_> = question.options.iter().map(|option| (&*option.id, &*option.kind)).collect();
        assert_eq!(ids, [("x", "other"), ("y", "allow_once")]);
        assert!(read(&json!({"options": []})).is_some());
        for none in [json!(null), json!({}), json!({"options": {}}), json!([1])] {
            assert!(read(&none).is_none(), "{none}");
        }
        assert!(Question::read(None).is_none());
    }
}
