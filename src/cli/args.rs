//! What was typed.

use crate::cli::help::{
    EXAMPLES, KILL_EXAMPLES, MCP_DETAILS, MCP_EXAMPLES, PROVIDERS_DETAILS, PROVIDERS_EXAMPLES, RUN_DETAILS,
    RUN_EXAMPLES, TREE_EXAMPLES,
};
use clap::{
    Parser, Subcommand,
    builder::NonEmptyStringValueParser,
    error::{ContextKind, ContextValue, ErrorKind},
    value_parser,
};
use std::{ffi::OsString, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};
use subagents::config::{Policy, parse_duration};

/// Delegate work to child agents: any program, one contract.
#[derive(Debug, Parser)]
#[command(name = "subagents", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    Providers(ProvidersArgs),
    Mcp(Box<McpArgs>),
    Tree(TreeArgs),
    Kill(KillArgs),
}

impl Command {
    /// Where more is said about it.
    pub(crate) fn help(&self) -> &'static str {
        match self {
            Self::Run(_) => "subagents run --help",
            Self::Providers(_) => "subagents providers --help",
            Self::Mcp(_) => "subagents mcp --help",
            Self::Tree(_) => "subagents tree --help",
            Self::Kill(_) => "subagents kill --help",
        }
    }
}

/// Delegate one prompt, or one for each line of a file.
///
/// Each answer is printed on stdout as it settles; everything else goes to stderr.
#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE, after_help = RUN_EXAMPLES, after_long_help = RUN_DETAILS)]
pub(crate) struct RunArgs {
    /// The provider that does the work [default: the configured default, or the only one, or an agent on PATH]
    ///
    /// A configured one, or an agent that is known by name: see `subagents providers`. Its limit and its deadlines hold; --timeout and --idle-timeout win over them.
    #[arg(short, long, value_name = "NAME", conflicts_with = "command", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) provider: Option<String>,

    /// Read this configuration, and look for no other
    #[arg(long, value_name = "FILE", value_parser = clap::builder::PathBufValueParser::new())]
    pub(crate) config: Option<PathBuf>,

    /// How many prompts of --each are under way at once [default: `jobs` of the configuration, or 4]
    ///
    /// What is over the limit of the provider waits for a place, and is seen to. Each child needs about four open files; the soft limit on them is raised as far as that needs.
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

    /// How long each child may work, like `30s` or `1h30m` [default: as configured, or no limit]
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,

    /// How long each child may take to be ready, like `2m` [default: as configured, or 60 s]
    ///
    /// A program is ready when it runs, an agent when it has made its session.
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub(crate) start_timeout: Option<Duration>,

    /// How long each child may be silent, like `500ms` [default: as configured, or no limit]
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub(crate) idle_timeout: Option<Duration>,

    /// Ask each child for a value that matches the JSON Schema in FILE, and print that value
    ///
    /// The file is JSON, an object at its root, of the supported subset; all that is wrong with it is told before
    /// anything starts. The provider has to be able to ask for a value; `subagents providers` tells which are.
    #[arg(long, value_name = "FILE", value_parser = clap::builder::PathBufValueParser::new())]
    pub(crate) schema: Option<PathBuf>,

    /// Who each child is to be: TEXT, or what is in FILE
    ///
    /// Empty text is an empty persona. The provider has to be able to set one.
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(crate) persona: Option<String>,

    /// The deepest place in the tree that the children's own delegations may reach; 0 forbids all
    ///
    /// It counts from the outermost host (see SUBAGENTS_DEPTH); of all such limits the smallest holds. The provider has
    /// to be able to keep its children to it.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_depth: Option<u32>,

    /// What an agent that asks for a permission is told [default: as configured, or `reject`]
    ///
    /// `reject` refuses each tool that the agent asks for, `allow` allows each. What is refused is told on stderr, and is
    /// in `details` with --json. Only agents that speak the Agent Client Protocol ask.
    #[arg(long, value_name = "reject|allow", value_parser = Policy::from_str)]
    pub(crate) permission: Option<Policy>,

    /// The model of each child, by an id that the child has on its list [default: as configured, or the child's own]
    ///
    /// The provider has to be able to choose one; an agent that does not have it says which it has.
    #[arg(long, value_name = "MODEL", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) model: Option<String>,

    /// COMMAND is an agent that speaks the Agent Client Protocol, not just any program
    #[arg(long, requires = "command", conflicts_with = "provider")]
    pub(crate) acp: bool,

    /// Let this variable reach the children, although its name looks like a secret
    ///
    /// May be given several times; a name that is not set here is none. A value of six bytes or more, of a name that looks
    /// like a secret, is masked in what the children say.
    #[arg(long, value_name = "NAME", value_parser = variable)]
    pub(crate) pass_env: Vec<String>,

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

    /// The program that does the work, and its arguments, in place of a provider
    ///
    /// It runs directly, without a shell. `{}` in an argument is replaced by the prompt; where no argument has it, the
    /// prompt goes to the program's stdin. What it writes to stdout is the answer, if it exits with 0.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Tell which providers are here, and whether each can work.
///
/// Those of the configuration come first, then the known agents that are found on PATH. An agent that speaks the Agent
/// Client Protocol is started, asked who it is, and ended; nothing else is started. The exit code is 0 also where a provider cannot work, which its entry says, with the next step;
/// it is 2 where the configuration is wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = PROVIDERS_EXAMPLES, after_long_help = PROVIDERS_DETAILS)]
pub(crate) struct ProvidersArgs {
    /// Print one line of JSON per provider
    #[arg(long)]
    pub(crate) json: bool,

    /// Start no agent: tell only what can be seen without
    #[arg(long)]
    pub(crate) no_start: bool,

    /// Read this configuration, and look for no other
    #[arg(long, value_name = "FILE", value_parser = clap::builder::PathBufValueParser::new())]
    pub(crate) config: Option<PathBuf>,
}

/// A port, or an address of this machine's own with one.
fn parse_loopback(text: &str) -> Result<SocketAddr, String> {
    let address = match text.parse::<u16>() {
        Ok(port) => Some(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => match text.strip_prefix("localhost:") {
            Some(port) => port.parse().ok().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port))),
            None => text.parse().ok(),
        },
    };
    address.filter(|address| address.ip().is_loopback()).ok_or_else(|| {
        "give a port, or `127.0.0.1:PORT`, or `[::1]:PORT`: only this machine is served".to_owned()
    })
}

/// Serve an MCP host: its model delegates to any provider, by tools.
///
/// A host (Claude Code, Codex, Gemini CLI, opencode, an editor) starts this and speaks the Model Context Protocol with it over
/// stdin and stdout. It offers the tools of the configuration's [tools], or without any one for each provider that can work
/// here. It ends when its stdin does, and with it whatever it has started. With --http it serves over HTTP instead.
#[derive(Debug, clap::Args)]
#[command(after_help = MCP_EXAMPLES, after_long_help = MCP_DETAILS)]
pub(crate) struct McpArgs {
    /// Offer one tool, for this provider alone, named `subagent`
    ///
    /// May be given several times: then they are named `subagent_NAME`.
    #[arg(short, long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) provider: Vec<String>,

    /// Read this configuration, and look for no other
    #[arg(long, value_name = "FILE", value_parser = clap::builder::PathBufValueParser::new())]
    pub(crate) config: Option<PathBuf>,

    /// Serve any number of hosts over HTTP on the loopback, instead of one over stdio
    ///
    /// ADDRESS is a port, `127.0.0.1:PORT` or `[::1]:PORT`; without it the system chooses a port. The URL is the one line on
    /// stdout. Whoever comes has to show a token: that of SUBAGENTS_MCP_TOKEN, in the header `Authorization: Bearer TOKEN`, or
    /// without that variable a new one, which stands in the URL. It serves until it is told to go; a host that has calls under
    /// way and does not listen for 30 seconds is gone.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "0", value_parser = parse_loopback)]
    pub(crate) http: Option<SocketAddr>,

    /// The working directory of the children [default: this one]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,

    /// How many children work at once; further calls wait [default: `jobs` of the configuration, or 16]
    #[arg(short, long, value_name = "JOBS", value_parser = value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,

    /// How long each child may work, like `30s` or `1h30m` [default: as configured, or no limit]
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,

    /// What an agent that asks for a permission is told [default: as configured, or `reject`]
    ///
    /// Nobody is there to ask: `reject` refuses each tool that an agent asks for, `allow` allows each. What was refused is told
    /// in the answer.
    #[arg(long, value_name = "reject|allow", value_parser = Policy::from_str)]
    pub(crate) permission: Option<Policy>,
}

/// Show what runs: the trees of all programs of this user that delegate.
///
/// `subagents run` and `subagents mcp` are seen while they run, and any program that opens the same socket. Of each run there
/// is its provider, its label, the end of its id, what it waits for and since when; never a prompt or an answer. Looking
/// changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = TREE_EXAMPLES)]
pub(crate) struct TreeArgs {
    /// Show this process alone
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// Look again and again, until Ctrl-C
    ///
    /// On a terminal it is drawn in place; elsewhere it is printed where it changed.
    #[arg(short, long)]
    pub(crate) watch: bool,

    /// Print one line of JSON per program
    #[arg(long)]
    pub(crate) json: bool,
}

/// End one run of any program of this user, and wait for it to be gone.
///
/// It is cancelled as its own caller would: it may give what it has so far, and its processes are ended. The exit code is 0
/// where it is gone, 1 where it is not, or where there is none.
#[derive(Debug, clap::Args)]
#[command(after_help = KILL_EXAMPLES)]
pub(crate) struct KillArgs {
    /// Its id, or the end of it, as `subagents tree` shows it
    #[arg(value_name = "RUN")]
    pub(crate) run: String,

    /// Look for it in this process alone
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

fn variable(name: &str) -> Result<String, String> {
    if name.is_empty() || name.contains('=') || name.contains(char::is_whitespace) {
        return Err(
            "give the name of a variable alone, such as MY_API_KEY; its value is that of here".to_owned()
        );
    }
    Ok(name.to_owned())
}

/// Whether the command or a provider does the work is asked for with a message of its own, so that it cannot be left to
/// the parser.
const USAGE: &str = "subagents run [OPTIONS] [PROMPT] [-- <COMMAND>...]";

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
            if let Ok(mut read) = Self::try_parse_from(&typed)
                && let Command::Run(run) = &mut read.command
                && run.prompt.as_deref() == Some(STAND_IN)
            {
                run.prompt = Some(prompt);
                return Ok(read);
            }
        }
        // After `--` there is the command, whatever the parser suggests.
        let wrong = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
        let tip = if wrong.starts_with('-') {
            "a prompt that begins with `-` can be piped to stdin"
        } else {
            "a prompt is one argument, in quotes; the program that does the work comes after `--`"
        };
        let tip = tip.to_owned();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        Err(error)
    }
}

/// In place of a prompt that begins with a dash. No argument can hold it.
const STAND_IN: &str = "\0";

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
        for text in [super::EXAMPLES, super::RUN_DETAILS, super::PROVIDERS_DETAILS] {
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
    fn only_this_machine_is_listened_to() {
        for (text, address) in [
            ("0", "127.0.0.1:0"),
            ("8765", "127.0.0.1:8765"),
            ("localhost:1", "127.0.0.1:1"),
            ("127.0.0.2:1", "127.0.0.2:1"),
            ("[::1]:8765", "[::1]:8765"),
        ] {
            assert_eq!(super::parse_loopback(text).expect(text).to_string(), address);
        }
        for text in
            ["", "x", "65536", "-1", "0.0.0.0:1", "[::]:1", "192.168.0.1:80", "127.0.0.1", "localhost:x"]
        {
            assert!(super::parse_loopback(text).expect_err(text).contains("only this machine"), "{text}");
        }
    }

    #[test]
    fn a_prompt_without_quotes_is_told() {
        let args = ["subagents", "run", "Review", "the", "diff", "--", "cat"].map(Into::into);
        let error = Args::read(args).expect_err("one argument too many").to_string();
        assert!(
            error.contains("'the'") && error.contains("in quotes") && !error.contains("piped"),
            "{error}"
        );
    }

    #[test]
    fn a_prompt_may_begin_with_a_dash_and_a_misspelt_option_is_no_prompt() {
        let parse = |args: &[&str]| {
            Args::read(["subagents", "run"].iter().chain(args).map(Into::into)).map(|args| {
                let super::Command::Run(run) = args.command else { panic!("another command") };
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
            assert!(error.contains("can be piped to stdin"), "{error}");
            assert!(error.contains(args.iter().find(|arg| arg.starts_with('-')).expect("one")), "{error}");
        }
    }
}
