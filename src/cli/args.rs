//! What was typed.

use clap::{
    Parser, Subcommand,
    builder::NonEmptyStringValueParser,
    error::{ContextKind, ContextValue, ErrorKind},
    value_parser,
};
use std::{ffi::OsString, path::PathBuf, time::Duration};
use subagents::config::parse_duration;

/// Delegate work to child agents: any program, one contract.
#[derive(Debug, Parser)]
#[command(name = "subagents", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
}

/// Delegate one prompt, or one for each line of a file.
///
/// Each answer is printed on stdout as it settles; everything else goes to stderr.
#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE, after_help = RUN_EXAMPLES, after_long_help = RUN_DETAILS)]
pub(crate) struct RunArgs {
    /// How many prompts of --each are under way at once [default: 4]
    ///
    /// Each child needs about four open files; the soft limit on them is raised as far as that needs.
    #[arg(short, long, value_name = "JOBS", value_parser = value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,

    /// Take one prompt from each line of FILE, or of stdin where FILE is `-`
    ///
    /// The file is read as there is room, so it may be endless. Lines end in LF or CR LF and are UTF-8, of 64 MiB at
    /// most; a byte order mark before the first is dropped. Blank lines are skipped; how many is told on stderr. A line
    /// that cannot be read is told with its number: nothing after it is started, what is under way is finished, and the
    /// exit code is 2.
    #[arg(long, value_name = "FILE|-", conflicts_with = "prompt")]
    pub(crate) each: Option<PathBuf>,

    /// A name to show for the work; with --each, the tree adds the prompt's index to it
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) label: Option<String>,

    /// The working directory of the children [default: this one]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,

    /// How long each child may work, like `30s` or `1h30m` [default: no limit]
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,

    /// How long each child may be silent, like `500ms` or `5m` [default: no limit]
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub(crate) idle_timeout: Option<Duration>,

    /// Show the live tree on stderr
    ///
    /// On a terminal it is drawn in place; elsewhere it is printed every two seconds where it changed, and at the end.
    #[arg(long)]
    pub(crate) tree: bool,

    /// Print one line of JSON per prompt
    #[arg(long)]
    pub(crate) json: bool,

    /// What to ask; without it and without --each, all of stdin
    ///
    /// It may begin with a dash where it holds a blank; a single word with a dash is taken for an option: pipe such a
    /// prompt to stdin.
    pub(crate) prompt: Option<String>,

    /// The program that does the work, and its arguments
    ///
    /// It runs directly, without a shell. `{}` in an argument is replaced by the prompt; where no argument has it, the
    /// prompt goes to the program's stdin. What it writes to stdout is the answer, if it exits with 0.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// The command is asked for with a message of its own, so that it cannot be left to the parser.
const USAGE: &str = "subagents run [OPTIONS] [PROMPT] -- <COMMAND>...";

impl Args {
    /// Reads what was typed. A prompt may begin with a dash where it holds a blank: no option does. A single word with a
    /// dash is a misspelt option.
    pub(crate) fn read(typed: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut typed: Vec<_> = typed.into_iter().collect();
        let mut error = match Self::try_parse_from(&typed) {
            Err(error) if error.kind() == ErrorKind::UnknownArgument => error,
            read => return read,
        };
        let ends = typed.iter().position(|arg| arg == "--").unwrap_or(typed.len());
        let dashed = |arg: &&str| arg.starts_with('-') && arg.contains(char::is_whitespace);
        let found =
            typed[..ends].iter().enumerate().find_map(|(at, arg)| Some((at, arg.to_str().filter(dashed)?)));
        if let Some((at, prompt)) = found.map(|(at, prompt)| (at, prompt.to_owned())) {
            // The parser would take `--` for its value as well, so something stands in that nobody can type.
            typed[at] = STAND_IN.into();
            if let Ok(mut read) = Self::try_parse_from(&typed) {
                let Command::Run(run) = &mut read.command;
                if run.prompt.as_deref() == Some(STAND_IN) {
                    run.prompt = Some(prompt);
                    return Ok(read);
                }
            }
        }
        // After `--` there is the command, whatever the parser suggests.
        let tip = "a prompt that begins with `-` can be piped to stdin".to_owned();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        Err(error)
    }
}

/// In place of a prompt that begins with a dash. No argument can hold it.
const STAND_IN: &str = "\0";

const EXAMPLES: &str = "\
Examples:
  subagents run 'Say hello' -- some-agent --print {}
  subagents run --each prompts.txt -j 8 --json -- agent --print {} > out.jsonl
  subagents run --help";

macro_rules! run_examples {
    () => {
        "\
Examples:
  subagents run 'Review the diff' -- some-agent --print {}
  git diff | subagents run --timeout 5m -- some-agent --review
  subagents run --each prompts.txt -j 8 --json -- agent --print {} > out.jsonl
  ls src/*.rs | subagents run --each - --tree -- sh -c 'wc -l < \"$(cat)\"'"
    };
}

const RUN_EXAMPLES: &str =
    concat!(run_examples!(), "\n\nSee --help for the output, the exit codes and the environment.");

const RUN_DETAILS: &str = concat!(
    run_examples!(),
    "

Output:
  Without --json, stdout gets the answers of the prompts that completed,
  unchanged but for a line feed where there is none at the end; bytes that are
  no UTF-8 become U+FFFD, and control characters are taken out where stdout is
  a terminal. A prompt that did not complete has a line on stderr, with its
  index, and its line in the file of --each.
  An answer is kept up to 16 MiB; one that is cut has a line on stderr, and
  `details.truncated` with --json.

  With --json, stdout gets one line for each prompt, in the order of
  settlement; a partial answer is in it, too:
    {\"type\":\"result\",\"index\":0,\"run\":\"<uuid>\",\"provider\":\"exec\",
     \"label\":null,\"stop_reason\":\"completed\",\"output\":\"…\",
     \"structured\":null,\"diagnostic\":null,\"details\":{},\"usage\":null,
     \"elapsed_ms\":12}
    {\"type\":\"start_error\",\"index\":1,\"provider\":\"exec\",
     \"code\":\"NOT_ON_PATH\",\"message\":\"…\"}
  `index` counts the prompts from 0. `elapsed_ms` includes the teardown.
  `details.leaked` says what may be left of a child; such a prompt counts as
  failed. Where stdout was closed from the start (>&-), it goes nowhere.

Signals:
  The first of Ctrl-C, SIGTERM and SIGHUP cancels everything and waits for the
  teardown; the second kills.

Exit codes:
  0    everything completed
  1    something did not, a program that is missing among it, or stdout could
       not be written
  2    usage, configuration, or a prompt that could not be read
  129, 130, 143    ended by SIGHUP, Ctrl-C, SIGTERM
  141  stdout was closed; what was under way is cancelled

Environment:
  SUBAGENTS_DEPTH, SUBAGENTS_MAX_DEPTH
      how deep this delegates already, and how deep it may; the children get
      the first one deeper, and the second where it is set
  SUBAGENTS_LOG
      what to log to stderr: a level, or target=level,…; no progress is drawn
      then
  Variables whose names hold KEY, PASSWORD, SECRET or TOKEN do not reach the
  children."
);

#[cfg(test)]
mod tests {
    use super::Args;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        let mut command = Args::command();
        assert!(command.render_long_help().to_string().contains("Examples:"));
        for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
            assert!(sub.render_help().to_string().contains("Examples:"), "{}", sub.get_name());
            assert!(sub.render_long_help().to_string().contains("Examples:"), "{}", sub.get_name());
        }
    }
    #[test]
    fn no_line_of_any_help_is_broken_by_the_width() {
        for text in [super::EXAMPLES, super::RUN_EXAMPLES, super::RUN_DETAILS] {
            for line in text.lines() {
                assert!(line.chars().count() <= 78, "{line}");
            }
        }
        let mut command = Args::command();
        let mut helps = vec![command.render_help(), command.render_long_help()];
        for sub in command.get_subcommands_mut() {
            helps.extend([sub.render_help(), sub.render_long_help()]);
        }
        for line in
            helps.iter().flat_map(|help| help.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
        {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn a_prompt_may_begin_with_a_dash_and_a_misspelt_option_is_no_prompt() {
        let parse = |args: &[&str]| {
            Args::read(["subagents", "run"].iter().chain(args).map(Into::into)).map(|args| {
                let super::Command::Run(run) = args.command;
                (run.prompt, run.jobs, run.json, run.timeout.is_some(), run.command.len())
            })
        };
        for prompt in ["- one\n- two", "-5 degrees", "--what is this?"] {
            let prompt = Some(prompt.to_owned());
            let text = prompt.as_deref().unwrap_or_default();
            let read = parse(&["--json", "--timeout", "1s", text, "--", "cat", "-x"]).expect(text);
            assert_eq!(read, (prompt.clone(), None, true, true, 2));
            let read = parse(&[text, "--json", "-j", "3", "--", "cat"]).expect(text);
            assert_eq!(read, (prompt.clone(), Some(3), true, false, 1));
        }
        for args in [
            &["--jsno", "--", "cat"][..],
            &["--jsno", "x", "--", "cat"],
            &["x", "--jsno", "--", "cat"],
            &["-x", "--", "cat"],
        ] {
            let error = parse(args).expect_err("no such option").to_string();
            assert!(error.contains(args.iter().find(|arg| arg.starts_with('-')).expect("one")), "{error}");
        }
    }
}
