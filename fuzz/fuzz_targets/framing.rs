//! Any bytes in any portions: the framer gives the lines that the whole gives, holds what it may hold, and never panics.
//!
//! `cargo +nightly fuzz run framing -- -max_total_time=600`

#![no_main]

use libfuzzer_sys::fuzz_target;
use subagents_process::{FrameError, LineFramer};

#[derive(arbitrary::Arbitrary, Debug)]
struct Input {
    limit: u8,
    total: Option<u16>,
    cuts: Vec<u8>,
    bytes: Vec<u8>,
}

#[derive(Debug, PartialEq)]
enum Frame {
    Line(String),
    TooLarge,
    TotalTooLarge,
    NotUtf8,
}

fn frame(popped: Result<String, FrameError>) -> Frame {
    match popped {
        Ok(line) => Frame::Line(line),
        Err(FrameError::TooLarge { .. }) => Frame::TooLarge,
        Err(FrameError::TotalTooLarge { .. }) => Frame::TotalTooLarge,
        Err(FrameError::NotUtf8) => Frame::NotUtf8,
        Err(error) => unreachable!("{error}"),
    }
}

fn frames<'a>(input: &Input, portions: impl Iterator<Item = &'a [u8]>) -> Vec<Frame> {
    let limit = usize::from(input.limit);
    let mut framer = LineFramer::new(limit);
    if let Some(total) = input.total {
        framer = framer.max_total(total.into());
    }
    let mut frames = Vec::new();
    for portion in portions {
        framer.push(portion);
        while let Some(popped) = framer.pop() {
            frames.push(frame(popped));
        }
    }
    frames.extend(framer.finish().map(frame));
    assert!(framer.finish().is_none() && framer.pop().is_none());
    for line in &frames {
        assert!(!matches!(line, Frame::Line(line) if line.len() > limit || line.contains('\n')));
    }
    frames
}

/// The rule, said in the plainest way.
fn expected(input: &Input) -> Vec<Frame> {
    let limit = usize::from(input.limit);
    let line = |line: &[u8]| {
        if line.len() > limit {
            return Frame::TooLarge;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        std::str::from_utf8(line).map_or(Frame::NotUtf8, |line| Frame::Line(line.to_owned()))
    };
    let total = input.total.map_or(usize::MAX, usize::from);
    let over = input.bytes.len() > total;
    let bytes = &input.bytes[..input.bytes.len().min(total)];
    let mut lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
    let last = lines.pop().unwrap_or_default();
    let mut frames: Vec<_> = lines.into_iter().map(line).collect();
    if over {
        frames.extend((last.len() > limit).then_some(Frame::TooLarge));
        frames.push(Frame::TotalTooLarge);
    } else if !last.is_empty() {
        frames.push(line(last));
    }
    frames
}

fuzz_target!(|input: Input| {
    let mut rest = &input.bytes[..];
    let mut cuts = input.cuts.iter().map(|cut| usize::from(*cut) + 1).cycle();
    let portions = std::iter::from_fn(|| {
        let cut = cuts.next().unwrap_or(1).min(rest.len());
        let (portion, left) = rest.split_at(cut);
        rest = left;
        (!portion.is_empty()).then_some(portion)
    });
    let wanted = expected(&input);
    assert_eq!(frames(&input, portions), wanted);
    assert_eq!(frames(&input, std::iter::once(&input.bytes[..])), wanted);
});
