//! How directives are written: from a text to the directives in it; pure.

use super::reply::{Call, Usage};
use serde_json::{Value, json};
use std::{fmt, time::Duration};

/// A stall of more than a day is a slip of the pen.
const LONGEST: Duration = Duration::from_hours(24);
/// So much of a directive is shown in a fault.
const SHOWN: usize = 60;

const NAMES: &[&str] = &[
    "reply",
    "tool",
    "json",
    "structured",
    "http",
    "httpx",
    "stall",
    "midstall",
    "slow",
    "drop",
    "dropx",
    "cut",
    "usage",
    "think",
];

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Directive {
    Step(Step),
    Modifier { step: Option<usize>, modifier: Modifier },
}

impl Directive {
    pub(crate) fn step(&self) -> Option<&Step> {
        match self {
            Self::Step(step) => Some(step),
            Self::Modifier { .. } => None,
        }
    }

    /// The modifier, where it is one of this step.
    pub(crate) fn modifier_at(&self, at: usize) -> Option<&Modifier> {
        match self {
            Self::Modifier { step, modifier } if step.is_none_or(|step| step == at) => Some(modifier),
            Self::Modifier { .. } | Self::Step(_) => None,
        }
    }
}

/// What one model call answers. JSON that is text in the end stays as it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Reply(String),
    Json(String),
    Structured(String),
    Tools(Vec<Call>),
}

/// How it does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Modifier {
    Http { status: u16, retry_after: Option<Duration> },
    HttpFirst { times: u64, status: u16, retry_after: Option<Duration> },
    Stall(Duration),
    StallMidway(Duration),
    Slow(Duration),
    Drop,
    DropFirst(u64),
    Cut,
    Usage(Usage),
    Think(String),
}

/// A directive that cannot be read, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    directive: String,
    hint: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the directive `{}` cannot be read: {}", self.directive, self.hint)
    }
}

/// All directives of a text, in order. Double brackets around anything else are text.
pub(crate) fn parse(text: &str) -> Result<Vec<Directive>, Fault> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("[[") {
        let inside = &rest[at + 2..];
        let Some(name) = name_of(inside) else {
            rest = &rest[at + 1..];
            continue;
        };
        let fault = |hint: String| Fault { directive: rest[at..].chars().take(SHOWN).collect(), hint };
        let arguments = inside[name.len()..].strip_prefix(':').unwrap_or(&inside[name.len()..]);
        let (directive, after) = read(name, arguments).map_err(fault)?;
        found.push(directive);
        rest = after;
    }
    Ok(found)
}

fn name_of(inside: &str) -> Option<&'static str> {
    let end = inside.find(|c: char| !c.is_ascii_lowercase())?;
    let (name, rest) = inside.split_at(end);
    let directive = rest.starts_with(':') || rest.starts_with("]]");
    NAMES.iter().copied().find(|known| directive && *known == name)
}

/// One directive, and what comes after it.
fn read<'a>(name: &str, arguments: &'a str) -> Result<(Directive, &'a str), String> {
    match name {
        "tool" => tools(arguments),
        "json" => json_text(arguments, "json", Step::Json),
        "structured" => json_text(arguments, "structured", Step::Structured),
        _ => {
            let (raw, after) = raw(arguments)?;
            if name == "reply" {
                return Ok((Directive::Step(Step::Reply(raw.to_owned())), after));
            }
            let (raw, step) = at_step(raw);
            Ok((Directive::Modifier { step, modifier: modifier(name, raw)? }, after))
        }
    }
}

/// Up to the end of the directive. Brackets that stand before it belong to the text: `[[reply:[a]]]` says `[a]`.
fn raw(text: &str) -> Result<(&str, &str), String> {
    let end = text.find("]]").ok_or("it has no end: close it with ]]")?;
    let more = text[end + 2..].len() - text[end + 2..].trim_start_matches(']').len();
    Ok((&text[..end + more], &text[end + more + 2..]))
}

/// `500@1` is `500` at step 1.
fn at_step(raw: &str) -> (&str, Option<usize>) {
    let split = raw.rsplit_once('@').and_then(|(before, step)| Some((before, step.parse().ok()?)));
    split.map_or((raw, None), |(before, step)| (before, Some(step)))
}

/// The first JSON value, how it was written, and what comes after it.
fn value(text: &str) -> Result<(Value, &str, &str), String> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => {
            let (written, after) = text.split_at(values.byte_offset());
            Ok((value, written.trim(), after.trim_start()))
        }
        Some(Err(error)) => Err(format!("its JSON is wrong ({error})")),
        None => Err("its JSON is missing".to_owned()),
    }
}

fn json_text<'a>(
    text: &'a str,
    name: &str,
    step: fn(String) -> Step,
) -> Result<(Directive, &'a str), String> {
    let hint = |what: String| format!("{what}: write one JSON value, as in [[{name}:{{\"answer\": 42}}]]");
    let (_, written, after) = value(text).map_err(hint)?;
    let after = after.strip_prefix("]]").ok_or_else(|| hint("more than its JSON is in it".to_owned()))?;
    Ok((Directive::Step(step(written.to_owned())), after))
}

fn tools(text: &str) -> Result<(Directive, &str), String> {
    let hint = |what: String| {
        format!(
            "{what}: write a tool and an object, as in [[tool:read {{\"path\": \"a\"}}]], and %% before another one"
        )
    };
    let mut calls = Vec::new();
    let mut rest = text.trim_start();
    loop {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let end = ["]]", "%%", "{"].iter().filter_map(|stop| rest.find(stop)).fold(end, usize::min);
        let (name, after) = rest.split_at(end);
        if name.is_empty() {
            return Err(hint("a tool's name is missing".to_owned()));
        }
        rest = after.trim_start();
        let mut arguments = json!({});
        if rest.starts_with('{') {
            (arguments, _, rest) = value(rest).map_err(hint)?;
        }
        calls.push(Call { name: name.to_owned(), arguments });
        if let Some(after) = rest.strip_prefix("]]") {
            return Ok((Directive::Step(Step::Tools(calls)), after));
        }
        let next = rest.strip_prefix("%%").ok_or_else(|| hint("a tool's arguments are wrong".to_owned()))?;
        rest = next.trim_start();
    }
}

fn modifier(name: &str, raw: &str) -> Result<Modifier, String> {
    let mut parts = raw.split(':');
    let parts = [parts.next(), parts.next(), parts.next(), parts.next()];
    let modifier = match (name, parts) {
        ("http", [Some(status), after, None, None]) => status_of(status)
            .zip(retry_after(after))
            .map(|(status, retry_after)| Modifier::Http { status, retry_after }),
        ("httpx", [Some(times), Some(status), after, None]) => count(times)
            .zip(status_of(status))
            .zip(retry_after(after))
            .map(|((times, status), retry_after)| Modifier::HttpFirst { times, status, retry_after }),
        ("stall", [Some(time), None, None, None]) => seconds(time).map(Modifier::Stall),
        ("midstall", [Some(time), None, None, None]) => seconds(time).map(Modifier::StallMidway),
        ("slow", [Some(time), None, None, None]) => {
            count(time).map(Duration::from_millis).filter(|time| *time <= LONGEST).map(Modifier::Slow)
        }
        ("drop", [Some(""), None, None, None]) => Some(Modifier::Drop),
        ("cut", [Some(""), None, None, None]) => Some(Modifier::Cut),
        ("dropx", [Some(times), None, None, None]) => count(times).map(Modifier::DropFirst),
        ("usage", [Some(input), Some(output), None, None]) => {
            count(input).zip(count(output)).map(|(input, output)| Modifier::Usage(Usage { input, output }))
        }
        ("think", _) => Some(Modifier::Think(raw.to_owned())),
        _ => None,
    };
    modifier.ok_or_else(|| right(name).to_owned())
}

fn right(name: &str) -> &'static str {
    match name {
        "http" => {
            "write a status from 400 to 599, and the seconds of Retry-After if any, as in [[http:429:2]]"
        }
        "httpx" => {
            "write how often, a status from 400 to 599, and the seconds of Retry-After if any, as in [[httpx:2:503]]"
        }
        "stall" => "write seconds, at most a day of them, as in [[stall:1.5]]",
        "midstall" => "write seconds, at most a day of them, as in [[midstall:1.5]]",
        "slow" => "write milliseconds, at most a day of them, as in [[slow:50]]",
        "drop" => "it takes nothing but a step, as in [[drop]] or [[drop:@1]]",
        "dropx" => "write how often, as in [[dropx:2]]",
        "cut" => "it takes nothing but a step, as in [[cut]] or [[cut:@1]]",
        _ => "write the tokens that came and those that go, as in [[usage:120:7]]",
    }
}

fn count(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn status_of(text: &str) -> Option<u16> {
    text.trim().parse().ok().filter(|status| (400..=599).contains(status))
}

#[expect(clippy::option_option, reason = "that there is none is one of the right answers")]
fn retry_after(text: Option<&str>) -> Option<Option<Duration>> {
    match text {
        None => Some(None),
        Some(text) => count(text).map(Duration::from_secs).map(Some),
    }
}

fn seconds(text: &str) -> Option<Duration> {
    let time = Duration::try_from_secs_f64(text.trim().parse().ok()?).ok()?;
    (time <= LONGEST).then_some(time)
}

#[cfg(test)]
mod tests;
