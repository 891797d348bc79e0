//! Where prompts come from: read line by line, as there is room for them.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::PathBuf,
};
use tokio::sync::mpsc;

/// The longest prompt: what is longer is most likely no prompt.
const LONGEST: usize = 64 * 1024 * 1024;

/// Where the prompts are.
#[derive(Debug)]
pub(crate) enum Source {
    One(String),
    File { path: PathBuf, file: File },
    Stdin,
}

/// What comes from a source.
#[derive(Debug)]
pub(crate) enum Input {
    Prompt {
        text: String,
        /// Where it stands, from 1, in a source that has lines.
        line: Option<u64>,
    },
    /// No more, and how many blank lines were skipped.
    End { blank: u64 },
    /// No more, because of this.
    Failed(String),
}

impl Source {
    /// How it is called in messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::One(_) => "the prompt".to_owned(),
            Self::File { path, .. } => subagents::sanitised(&path.to_string_lossy()),
            Self::Stdin => "stdin".to_owned(),
        }
    }

    /// How many prompts there are, where that can be known beforehand. Reads the whole file, apart from what
    /// [`start`](Self::start) reads.
    pub(crate) fn counter(&self) -> Option<impl FnOnce() -> Option<u64> + Send + 'static> {
        let path = match self {
            Self::File { path, file } if file.metadata().is_ok_and(|data| data.is_file()) => path.clone(),
            Self::One(_) | Self::File { .. } | Self::Stdin => return None,
        };
        Some(move || {
            let mut count = 0;
            for line in Lines::new(BufReader::new(File::open(path).ok()?)) {
                line.ok()?;
                count += 1;
            }
            Some(count)
        })
    }

    /// Starts to read. A thread of its own, since a read from a pipe may wait for ever and cannot be cancelled; it ends
    /// with the source, the receiver or the process.
    pub(crate) fn start(self) -> io::Result<mpsc::Receiver<Input>> {
        let name = self.name();
        // One line is read ahead, no more: lines may be large.
        let (sender, receiver) = mpsc::channel(1);
        let read: Box<dyn FnOnce() + Send> = match self {
            Self::One(prompt) => {
                let _ = sender.try_send(Input::Prompt { text: prompt, line: None });
                return Ok(receiver);
            }
            Self::File { file, .. } => Box::new(move || feed(BufReader::new(file), &name, &sender)),
            Self::Stdin => Box::new(move || feed(io::stdin().lock(), &name, &sender)),
        };
        std::thread::Builder::new().name("prompts".to_owned()).spawn(read)?;
        Ok(receiver)
    }
}

fn feed(reader: impl BufRead, name: &str, sender: &mpsc::Sender<Input>) {
    let mut lines = Lines::new(reader);
    while let Some(line) = lines.next() {
        let (input, failed) = match line {
            Ok(text) => (Input::Prompt { text, line: Some(lines.number) }, false),
            Err(why) => (Input::Failed(format!("{name}, {why}")), true),
        };
        if sender.blocking_send(input).is_err() || failed {
            return;
        }
    }
    let _ = sender.blocking_send(Input::End { blank: lines.blank });
}

/// All of a reader as one prompt, unchanged.
pub(crate) fn whole(reader: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = reader.take(LONGEST as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("cannot read the prompt from stdin: {error}"))?;
    if bytes.len() > LONGEST {
        return Err(format!("the prompt on stdin is longer than {} MiB", LONGEST >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("the prompt on stdin is not UTF-8 (at byte {at}); convert it, for example with iconv")
    })
}

/// The lines of a reader that are prompts. Ends after the first that cannot be read.
struct Lines<R> {
    reader: R,
    number: u64,
    blank: u64,
    ended: bool,
}

impl<R: BufRead> Lines<R> {
    fn new(reader: R) -> Self {
        Self { reader, number: 0, blank: 0, ended: false }
    }

    fn line(&mut self) -> Result<Option<String>, String> {
        let mut bytes = Vec::new();
        self.number += 1;
        let number = self.number;
        let read = self.reader.by_ref().take(LONGEST as u64 + 2).read_until(b'\n', &mut bytes);
        if read.map_err(|error| format!("line {number}: {error}"))? == 0 {
            return Ok(None);
        }
        if bytes.pop_if(|byte| *byte == b'\n').is_some() {
            bytes.pop_if(|byte| *byte == b'\r');
        }
        if bytes.len() > LONGEST {
            return Err(format!("line {number} is longer than {} MiB", LONGEST >> 20));
        }
        if number == 1 && bytes.starts_with("\u{feff}".as_bytes()) {
            bytes.drain(..'\u{feff}'.len_utf8());
        }
        String::from_utf8(bytes).map(Some).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            format!("line {number} is not UTF-8 (at byte {at}); convert it, for example with iconv")
        })
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<String, String>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.line() {
                Ok(Some(line)) if line.trim().is_empty() => self.blank += 1,
                Ok(Some(line)) => return Some(Ok(line)),
                Ok(None) => self.ended = true,
                Err(why) => {
                    self.ended = true;
                    return Some(Err(why));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Lines, whole};

    fn lines(text: &[u8]) -> (Vec<Result<String, String>>, u64) {
        let mut lines = Lines::new(text);
        (lines.by_ref().collect(), lines.blank)
    }

    #[test]
    fn line_ends_go_and_blank_lines_are_counted() {
        for (text, prompts, blank) in [
            ("", vec![], 0),
            ("a", vec!["a"], 0),
            ("a\nb\n", vec!["a", "b"], 0),
            ("a\r\nb\r\n", vec!["a", "b"], 0),
            ("\na\n \t\n\r\nb", vec!["a", "b"], 3),
            ("a\rb\n", vec!["a\rb"], 0),
            (" a \n", vec![" a "], 0),
            ("\u{feff}a\n\u{feff}b", vec!["a", "\u{feff}b"], 0),
            ("\u{feff}\nb", vec!["b"], 1),
        ] {
            let expected = prompts.into_iter().map(|prompt| Ok(prompt.to_owned())).collect();
            assert_eq!(lines(text.as_bytes()), (expected, blank), "{text:?}");
        }
    }

    #[test]
    fn the_first_line_that_is_no_text_ends_it_with_its_number() {
        let (lines, _) = lines(b"a\n\nb\xff\nc\n");
        assert_eq!(lines[0], Ok("a".to_owned()));
        let why = lines[1].as_ref().expect_err("no UTF-8");
        assert!(why.starts_with("line 3 ") && why.contains("byte 1"), "{why}");
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn a_whole_prompt_is_unchanged() {
        assert_eq!(whole(&b" a\r\n\n"[..]).as_deref(), Ok(" a\r\n\n"));
        assert!(whole(&b"\xff"[..]).is_err());
    }
}
