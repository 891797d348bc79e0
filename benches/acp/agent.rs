//! What is measured against: the least that an agent can be, a program as trivial, and the bare lines. This benchmark
//! itself, started again with an argument; the standard library alone.

use crate::pour::Pour;
use std::io::{BufRead, Read, Write, stdin, stdout};

/// The session that each agent makes.
const SESSION: &str = "0199f0c8-7f3e-7c52-9a51-6b0e4d9f1c2a";
/// Lines are written in portions of some such size, so that whoever reads is what is measured.
const PORTION: usize = 64 * 1024;

/// What this program is when it is started again, by its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Speaks the protocol; a prompt is a [`Pour`].
    Agent,
    /// Takes a prompt and answers it: what the provider of programs runs.
    Program,
    /// Writes the lines that the agent would write for a [`Pour`], and nothing else.
    Lines(Pour),
}

impl Role {
    pub(crate) fn of(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        match &*arguments.next()? {
            "agent" => Some(Self::Agent),
            "program" => Some(Self::Program),
            "lines" => Pour::find(&arguments.next()?).map(Self::Lines),
            _ => None,
        }
    }

    pub(crate) fn arguments(self) -> Vec<String> {
        match self {
            Self::Agent => vec!["agent".to_owned()],
            Self::Program => vec!["program".to_owned()],
            Self::Lines(pour) => vec!["lines".to_owned(), pour.prompt()],
        }
    }

    /// Plays it. Whoever listens may be gone; so is this then.
    pub(crate) fn play(self) -> std::io::Result<()> {
        match self {
            Self::Agent => agent(),
            Self::Program => {
                stdin().lock().read_to_end(&mut Vec::new())?;
                stdout().lock().write_all(Pour::ONE.chunk().as_bytes())
            }
            Self::Lines(pour) => lines(pour),
        }
    }
}

fn agent() -> std::io::Result<()> {
    let mut stdin = stdin().lock();
    let mut line = String::new();
    while stdin.read_line(&mut line)? > 0 {
        let asks = |method: &str| line.contains(&format!(r#""method":"{method}""#));
        let result = if asks("initialize") {
            r#"{"protocolVersion":1,"agentInfo":{"name":"scripted","version":"1"},"agentCapabilities":{}}"#
                .to_owned()
        } else if asks("session/new") {
            format!(r#"{{"sessionId":"{SESSION}"}}"#)
        } else if asks("session/prompt") {
            lines(Pour::find(&line).unwrap_or(Pour::ONE))?;
            r#"{"stopReason":"end_turn"}"#.to_owned()
        } else {
            "null".to_owned()
        };
        if let Some((_, rest)) = line.split_once(r#""id":"#) {
            let id = &rest[..rest.find([',', '}']).unwrap_or(0)];
            let mut stdout = stdout().lock();
            writeln!(stdout, r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)?;
            stdout.flush()?;
        }
        line.clear();
    }
    Ok(())
}

fn lines(pour: Pour) -> std::io::Result<()> {
    let line = |text: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{SESSION}","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
        ) + "\n"
    };
    // Two in turn: who says the same again and again is taken for broken.
    let chunk = pour.chunk();
    let other: String = chunk.chars().rev().collect();
    let (line, pair) = (line(&chunk), line(&chunk) + &line(&other));
    let pairs = pour.chunks / 2;
    let whole = (PORTION / pair.len()).clamp(1, pairs.max(1));
    let portion = pair.repeat(whole);
    let mut stdout = stdout().lock();
    for _ in 0..pairs / whole {
        stdout.write_all(portion.as_bytes())?;
    }
    stdout.write_all(pair.repeat(pairs % whole).as_bytes())?;
    stdout.write_all(line.repeat(pour.chunks % 2).as_bytes())?;
    stdout.flush()
}
