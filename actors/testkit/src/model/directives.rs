//! From the directives in a prompt to the reply of one model call; pure.

use super::{
    ModelRequest, Reply, Turn,
    reply::{Call, Times},
    request::user_text,
    syntax::{self, Directive, Fault, Modifier, Step},
};
use serde_json::{Value, json};
use std::time::Duration;

/// The tool by which Claude Code asks for a structured answer.
const STRUCTURED: &str = "StructuredOutput";
const TOOL: &str = "{{tool}}";

/// The reply that the request's own prompt calls for.
pub(crate) fn reply(request: &ModelRequest) -> Result<Reply, Fault> {
    let turns = request.turns();
    let Some((at, directives)) = script(turns)? else { return Ok(echo(request)) };
    // Which step it is stands in the conversation itself: one answer for each step that was played. So conversations
    // need no memory here, and cannot get in each other's way.
    let step = turns[at..].iter().filter(|turn| matches!(turn, Turn::Assistant { .. })).count();
    let steps: Vec<_> = directives.iter().filter_map(Directive::step).collect();
    let results = request.tool_results().join(" | ");
    let mut reply = match steps.get(step) {
        Some(step) => play(step, request, &results),
        None if steps.is_empty() => Reply::text("ok"),
        None if matches!(turns.last(), Some(Turn::Tool { .. })) => {
            Reply::text(format!("tool said: {results}"))
        }
        None => return Ok(echo(request)),
    };
    for modifier in directives.iter().filter_map(|directive| directive.modifier_at(step)) {
        reply = modify(reply, modifier);
    }
    Ok(reply)
}

/// The last text of the user that has directives, and these.
fn script(turns: &[Turn]) -> Result<Option<(usize, Vec<Directive>)>, Fault> {
    for (at, turn) in turns.iter().enumerate().rev() {
        if let Some(text) = user_text(turn) {
            let directives = syntax::parse(text)?;
            if !directives.is_empty() {
                return Ok(Some((at, directives)));
            }
        }
    }
    Ok(None)
}

fn echo(request: &ModelRequest) -> Reply {
    // Agents ask questions of their own by the way, with a schema: an empty object is what they cope with.
    if request.wants_json() {
        return Reply::json(&json!({}));
    }
    Reply::text(format!("echo: {}", request.prompt()))
}

fn play(step: &Step, request: &ModelRequest, results: &str) -> Reply {
    match step {
        Step::Reply(text) => Reply::text(text.replace(TOOL, results)),
        Step::Structured(text) if request.offers(STRUCTURED) => {
            // It was read once, and what is filled in is escaped: it is JSON still.
            let value = serde_json::from_str(&fill_json(text, results)).unwrap_or(Value::Null);
            Reply::call(STRUCTURED, value)
        }
        Step::Json(text) | Step::Structured(text) => Reply::text(fill_json(text, results)),
        // An agent asks for a title or a summary with the user's prompt in it, and could not take a call there.
        Step::Tools(_) if request.tools().next().is_none() => Reply::text("no tools were offered"),
        Step::Tools(calls) => calls.iter().fold(Reply::default(), |reply, Call { name, arguments }| {
            reply.and_call(name.as_str(), fill(arguments, results))
        }),
    }
}

/// Into JSON text: what is filled in stands within a string.
fn fill_json(text: &str, results: &str) -> String {
    let quoted = Value::from(results).to_string();
    text.replace(TOOL, &quoted[1..quoted.len() - 1])
}

fn fill(value: &Value, results: &str) -> Value {
    if let Some(text) = value.as_str() {
        text.replace(TOOL, results).into()
    } else if let Some(list) = value.as_array() {
        list.iter().map(|item| fill(item, results)).collect()
    } else if let Some(object) = value.as_object() {
        object.iter().map(|(key, item)| (key.clone(), fill(item, results))).collect()
    } else {
        value.clone()
    }
}

fn modify(mut reply: Reply, modifier: &Modifier) -> Reply {
    match modifier {
        Modifier::Http { status, retry_after } => after(reply.failing(*status, Times::Always), *retry_after),
        Modifier::HttpFirst { times, status, retry_after } => {
            after(reply.fail_first(*times, *status), *retry_after)
        }
        Modifier::Stall(time) => reply.stall(*time),
        Modifier::StallMidway(time) => reply.stall_midway(*time),
        Modifier::Slow(time) => reply.pace(*time),
        Modifier::Drop => reply.drop_midway(),
        Modifier::DropFirst(times) => reply.drop_first(*times),
        Modifier::Cut => reply.cut_midway(),
        Modifier::Usage(usage) => {
            reply.usage = Some(*usage);
            reply
        }
        Modifier::Think(thought) => reply.think(thought.as_str()),
    }
}

fn after(reply: Reply, retry_after: Option<Duration>) -> Reply {
    match retry_after {
        Some(time) => reply.retry_after(time),
        None => reply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Protocol,
        request::{Asked, Tool},
    };

    fn user(text: &str) -> Turn {
        Turn::User(text.into())
    }

    fn called() -> Turn {
        Turn::Assistant { text: String::new(), calls: vec!["t".into()] }
    }

    fn said() -> Turn {
        Turn::Assistant { text: "so".into(), calls: Vec::new() }
    }

    fn result(text: &str) -> Turn {
        Turn::Tool { id: "c".into(), text: text.into() }
    }

    fn request(turns: &[Turn], tools: &[&str], wants_json: bool) -> ModelRequest {
        let tools = tools.iter().map(|name| Tool { name: (*name).into(), freeform: false }).collect();
        let asked = Asked { model: "m".into(), streaming: true, turns: turns.to_vec(), tools, wants_json };
        ModelRequest::new(Protocol::Messages, asked, Value::Null, 0)
    }

    fn of(turns: &[Turn]) -> Reply {
        reply(&request(turns, &["t"], false)).unwrap_or_else(|fault| panic!("{turns:?}: {fault}"))
    }

    #[test]
    fn the_step_follows_from_the_conversation() {
        let script = user("[[tool:t {\"a\":1}]] [[tool:t %% t]] [[reply:done {{tool}}]]");
        let first = [script.clone(), user("<reminder>x</reminder>")];
        assert_eq!(of(&first), Reply::call("t", json!({"a": 1})));
        let second = [&first[..], &[called(), result("1"), user("<reminder>y</reminder>")]].concat();
        assert_eq!(of(&second), Reply::call("t", json!({})).and_call("t", json!({})));
        let third = [&second[..], &[called(), result("2"), result("3")]].concat();
        assert_eq!(of(&third), Reply::text("done 2 | 3"));
        let over = [&third[..], &[called(), result("4")]].concat();
        assert_eq!(of(&over), Reply::text("tool said: 4"));
        // The prompts after it are others.
        let next = [&third[..], &[said(), user("and now")]].concat();
        assert_eq!(of(&next), Reply::text("echo: and now"));
        let again = [&next[..], &[said(), user("[[reply:anew]]")]].concat();
        assert_eq!(of(&again), Reply::text("anew"));
        assert_eq!(of(&[user("[[reply:a]][[reply:b]]"), said(), user("more")]), Reply::text("b"));
    }

    #[test]
    fn no_directive_is_an_echo_and_modifiers_alone_are_ok() {
        assert_eq!(of(&[user("hello")]), Reply::text("echo: hello"));
        assert_eq!(of(&[]), Reply::text("echo: "));
        assert_eq!(of(&[user("[[usage:1:2]]")]), Reply::text("ok").usage(1, 2));
        let asked = request(&[user("what next?")], &[], true);
        assert_eq!(reply(&asked), Ok(Reply::text("{}")), "who wants JSON gets some");
    }

    #[test]
    fn a_modifier_of_one_step_leaves_the_others_alone() {
        let script = user("[[tool:t]] [[reply:b]] [[http:500@1]] [[think:hm@0]] [[slow:5]]");
        let pace = Duration::from_millis(5);
        assert_eq!(of(std::slice::from_ref(&script)), Reply::call("t", json!({})).think("hm").pace(pace));
        let failing = Reply { text: Some("b".into()), ..Reply::http(500) }.pace(pace);
        assert_eq!(of(&[script, called(), result("")]), failing);
    }

    #[test]
    fn what_is_filled_in_cannot_break_json() {
        let results = [called(), result("say \"hi\"\n]]")];
        let with = |text: &str| of(&[&[user(text)], &results[..]].concat());
        assert_eq!(
            with("[[tool:t]] [[json:{\"said\":\"{{tool}}\"}]]"),
            Reply::text(r#"{"said":"say \"hi\"\n]]"}"#)
        );
        assert_eq!(
            with("[[tool:t]] [[tool:t {\"x\":[\"<{{tool}}>\"]}]]"),
            Reply::call("t", json!({"x": ["<say \"hi\"\n]]>"]}))
        );
    }

    #[test]
    fn a_structured_answer_is_a_call_where_there_is_a_tool_for_it() {
        let turns = [user("[[structured:{\"a\": 1}]]")];
        let by_tool = reply(&request(&turns, &["t", STRUCTURED], false));
        assert_eq!(by_tool, Ok(Reply::call(STRUCTURED, json!({"a": 1}))));
        assert_eq!(of(&turns), Reply::text("{\"a\": 1}"));
    }

    #[test]
    fn who_offers_no_tools_gets_no_call() {
        let asked = request(&[user("title of: [[tool:t]]")], &[], false);
        assert_eq!(reply(&asked), Ok(Reply::text("no tools were offered")));
    }

    #[test]
    fn a_wrong_directive_is_a_400() {
        let reply = Reply::from_prompt(&request(&[user("[[http:9]]")], &[], false));
        let failure = reply.failure.expect("a failure");
        assert_eq!(failure.status, 400);
        assert!(failure.message.is_some_and(|message| message.contains("[[http:429:2]]")));
    }
}
