//! What the help says beside the options. No line is wider than 78 columns.

pub(crate) const EXAMPLES: &str = "\
Examples:
  subagents run 'Say hello' -- some-agent --print {}
  subagents run -p gemini 'Say hello'
  subagents run --each prompts.txt -j 8 --json -- agent --print {} > out.jsonl
  subagents providers
  subagents mcp
  subagents tree --watch
  subagents run --help";

macro_rules! run_examples {
    () => {
        "\
Examples:
  subagents run 'Review the diff' -- some-agent --print {}
  subagents run -p gemini 'Review the diff'
  subagents run --permission allow --acp 'Fix the typo' -- my-agent --acp
  git diff | subagents run --timeout 5m -- some-agent --review
  subagents run --each prompts.txt -j 8 --json -- agent --print {} > out.jsonl
  subagents run -p some-agent --schema finding.json 'Find the worst bug'
  ls src/*.rs | subagents run --each - --tree -- sh -c 'wc -l < \"$(cat)\"'"
    };
}

pub(crate) const RUN_EXAMPLES: &str =
    concat!(run_examples!(), "\n\nSee --help for the output, the exit codes and the environment.");

pub(crate) const RUN_DETAILS: &str = concat!(
    run_examples!(),
    "

Output:
  Without --json, stdout gets the answers of the prompts that completed,
  unchanged but for a line feed where there is none at the end; bytes that are
  no UTF-8 become U+FFFD, and control characters are taken out where stdout is
  a terminal. A prompt that did not complete has a line on stderr, with its
  index, and its line in the file of --each.
  With --schema the answer is the value, as one line of JSON. A child that did
  not give one has not completed; `details.schema_attempts` has each attempt.
  An answer is kept up to 16 MiB; one that is cut has a line on stderr, and
  `details.truncated` with --json. So has one whose child had tool calls
  denied: `details.denied_calls`, with the tool and the reason of each.

  With --json, stdout gets one line for each prompt, in the order of
  settlement; a partial answer is in it, too:
    {\"type\":\"result\",\"index\":0,\"run\":\"<uuid>\",\"provider\":\"exec\",
     \"label\":null,\"stop_reason\":\"completed\",\"output\":\"…\",
     \"structured\":null,\"diagnostic\":null,\"details\":{},\"usage\":null,
     \"elapsed_ms\":12}
    {\"type\":\"start_error\",\"index\":1,\"provider\":\"exec\",
     \"code\":\"NOT_ON_PATH\",\"message\":\"…\"}
  `provider` is the name of the configured or known one; with COMMAND it is
  `exec`, or `acp` with --acp.
  `index` counts the prompts from 0. `elapsed_ms` includes the teardown.
  `details.leaked` says what may be left of a child; such a prompt counts as
  failed. Where stdout was closed from the start (>&-), it goes nowhere.

  On stderr is what goes wrong. Where it is a terminal there is a bar as well,
  with --tree the live tree above it, with what each run waits for and what
  its child said last, and a summary. Where TERM is dumb nothing is drawn in
  place.

Agents:
  claude-agent-acp, codex-acp, gemini, opencode and qwen are known by name:
  -p NAME needs no configuration where the program is on PATH, and where
  nothing is configured the first that is there does the work. Any other agent
  that speaks the Agent Client Protocol is a COMMAND with --acp, or is
  configured. What one asks a permission for is refused unless --permission
  or the configuration says `allow`. One that is known, also by COMMAND, may
  be silent for 30m where nothing else is set, and gets no secret but those of
  its own sign-in and those that --pass-env or the configuration names.

Configuration:
  subagents.toml, in the directory this is called in or the nearest one above
  it, else subagents/subagents.toml in $XDG_CONFIG_HOME or ~/.config:
    default_provider = \"some-agent\"
    ledger = false       # or a folder: what is started is recorded there
    [defaults]
    timeout = \"5m\"       # idle_timeout, start_timeout, jobs
    [providers.some-agent]
    kind = \"exec\"
    command = [\"some-agent\", \"--print\", \"{}\"]
    max_concurrent = 8   # also description, pass_env, env, cwd, allow_empty,
                         # max_output, max_total_output, the three timeouts
    [providers.gemini]
    kind = \"acp\"         # known by name: it needs no command
    permission = \"allow\" # also mode, model, auth_method, persona,
                         # depth_limit, schema_attempts, mcp_servers.NAME
  The most specific deadline holds: of the command line, of the provider, of
  [defaults]. Only [defaults] is for COMMAND.

Signals:
  The first of Ctrl-C, SIGTERM and SIGHUP cancels everything and waits for the
  teardown: a program has 1 s from the end of its input and 2 s from SIGTERM.
  The second kills. Where this program is killed itself, its watchdog ends all
  that it started, and the next run tells what was under way (the ledger).

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
  SUBAGENTS__SECTION__KEY
      overrides a key of the configuration: SUBAGENTS__DEFAULTS__TIMEOUT=5m,
      SUBAGENTS__PROVIDERS__NAME__MAX_CONCURRENT=2
  SUBAGENTS_LOG
      what to log to stderr: a level, or target=level,…; no progress is drawn
      then
  Variables whose names hold KEY, PASSWORD, SECRET or TOKEN do not reach the
  children, but for those that --pass-env, or `pass_env` of a provider, names."
);

macro_rules! mcp_examples {
    () => {
        "\
Examples:
  claude mcp add subagents -- subagents mcp
  codex mcp add subagents -- subagents mcp
  gemini mcp add subagents subagents mcp
  subagents mcp -p codex-acp --permission allow --timeout 30m
  SUBAGENTS_MCP_TOKEN=\"$(cat token)\" subagents mcp --http 8765"
    };
}

pub(crate) const MCP_EXAMPLES: &str =
    concat!(mcp_examples!(), "\n\nSee --help for the tools, the configuration and the exit codes.");

pub(crate) const MCP_DETAILS: &str = concat!(
    mcp_examples!(),
    "

Hosts:
  Each host starts this in the directory that it works in. For opencode, in
  opencode.json:
    \"mcp\": {\"subagents\": {\"type\": \"local\",
                            \"command\": [\"subagents\", \"mcp\"]}}
  For any other host: a server that is started by the command `subagents mcp`
  and speaks over stdio. One that takes an address gets that of --http:
    claude mcp add --transport http subagents http://127.0.0.1:8765/mcp \\
      --header 'Authorization: Bearer ${SUBAGENTS_MCP_TOKEN}'

Tools:
  subagent_NAME delegates one task to the provider NAME and returns its
  answer; calls run at once. subagent_output reads on in a long answer. Which
  there are, and what each does:
    [tools.research]
    provider = \"gemini\"
    max_depth = 2        # or \"provider-managed\"
                         # also description, persona, model, schema, allow,
                         # deny, max_answer, read_only and the three timeouts
  With a table like that there are no others.

Exit codes:
  0    the host went, and nothing is left
  1    the host did not speak the protocol, or something may be left
  2    usage or configuration
  129, 130, 143    ended by SIGHUP, Ctrl-C, SIGTERM

Environment:
  As of `subagents run`. A host that is a child of subagents itself begins at
  the depth that SUBAGENTS_DEPTH says, also where it clears the environment of
  the servers that it starts.
  SUBAGENTS_MCP_TOKEN
      what a host has to show to --http: 16 to 256 letters, digits or -._~"
);

pub(crate) const TREE_EXAMPLES: &str = "\
Examples:
  subagents tree --watch
  subagents tree --pid 4711
  subagents tree --json | jq '.tree.nodes[] | select(.kind == \"run\")'";

pub(crate) const KILL_EXAMPLES: &str = "\
Examples:
  subagents kill 37486a1f";

macro_rules! providers_examples {
    () => {
        "\
Examples:
  subagents providers
  subagents providers --json | jq 'select(.type == \"provider\" and .works)'
  subagents providers --no-start
  subagents providers --config other.toml"
    };
}

pub(crate) const PROVIDERS_EXAMPLES: &str =
    concat!(providers_examples!(), "\n\nSee --help for the output and the exit codes.");

pub(crate) const PROVIDERS_DETAILS: &str = concat!(
    providers_examples!(),
    "

Output:
  stdout gets what is configured, then the known agents that are on PATH, then
  how to get the others. Of each: its name, its kind, the program as it was
  found, who the agent says it is, what it can do, its limits, and the names
  of the variables that are set for it or passed on, never their values. One
  that cannot work has the code and the message that a start would have, and
  the next step where that is known.

  With --json, stdout gets one line for each:
    {\"type\":\"provider\",\"name\":\"gemini\",\"kind\":\"acp\",\"default\":true,
     \"description\":\"Gemini CLI\",\"source\":\"path\",\"works\":true,
     \"program\":\"/usr/local/bin/gemini\",\"code\":null,\"message\":null,
     \"agent\":{\"name\":\"Gemini CLI\",\"version\":\"0.61.0\"},
     \"install\":\"npm install …\",\"sign_in\":\"start `gemini` once, …\",
     \"capabilities\":[\"outputSchema\",\"agentOptions.model\"],
     \"prompts\":[\"text\"],\"permission\":\"reject\",\"mode\":null,
     \"model\":null,\"max_concurrent\":null,\"max_output\":null,
     \"max_total_output\":null,\"allow_empty\":false,\"timeout_ms\":null,
     \"idle_timeout_ms\":null,\"start_timeout_ms\":null,\"cwd\":null,
     \"env\":[],\"pass_env\":[\"GEMINI_API_KEY\"],\"config\":null}
    {\"type\":\"known_agent\",\"name\":\"qwen\",\"title\":\"Qwen Code\",
     \"install\":\"npm install …\",\"sign_in\":\"…\"}
  `source` is `config` or `path`; `default` is that of the one that works
  where none is named.

Exit codes:
  0    the configuration is right, or there is none
  1    stdout could not be written
  2    usage, or a configuration that is wrong
  141  stdout was closed"
);
