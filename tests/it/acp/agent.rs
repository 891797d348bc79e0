//! An agent that does what a script says: this test program, started again as a child.

#![expect(clippy::needless_pass_by_value, reason = "a script reads best with its values in it")]

use serde_json::{Value, json};
use std::{
    ffi::OsString,
    fs::File,
    io::{BufRead, Write},
    process::Stdio,
    time::Duration,
};
use subagents::Acp;

/// The variable that holds the script.
const SCRIPT: &str = "ACP_SCRIPT";
/// The session that scripted agents make.
pub(crate) const SESSION: &str = "the-session";

/// What an agent does, step by step. At its end it reads on until its stdin is closed, answers nothing, and exits with 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script(Vec<Value>);

impl Script {
    /// An agent that does nothing of itself.
    pub(crate) fn bare() -> Self {
        Self::default()
    }

    /// One that has made its session and got its prompt.
    pub(crate) fn prompted() -> Self {
        Self::opened().expect("session/prompt")
    }

    /// One that has made its session.
    pub(crate) fn opened() -> Self {
        Self::initialized().expect("session/new").reply(json!({"sessionId": SESSION}))
    }

    /// One that has said who it is.
    pub(crate) fn initialized() -> Self {
        let info = json!({"name": "scripted", "version": "1.0"});
        Self::bare().expect("initialize").reply(json!({"protocolVersion": 1, "agentInfo": info}))
    }

    /// Any step: an object with one name.
    pub(crate) fn step(mut self, step: Value) -> Self {
        self.0.push(step);
        self
    }

    /// Reads until there is a message with this method; what else comes is passed over.
    pub(crate) fn expect(self, method: &str) -> Self {
        self.step(json!({"expect": method}))
    }

    /// Answers the message that was expected last.
    pub(crate) fn reply(self, result: Value) -> Self {
        self.step(json!({"say": {"jsonrpc": "2.0", "id": "$id", "result": result}}))
    }

    /// Refuses it.
    pub(crate) fn fail(self, error: Value) -> Self {
        self.step(json!({"say": {"jsonrpc": "2.0", "id": "$id", "error": error}}))
    }

    /// Ends the turn so.
    pub(crate) fn stop(self, reason: &str) -> Self {
        self.reply(json!({"stopReason": reason}))
    }

    /// Writes a message. `"$id"` in it is the id of what was expected last; in a text, `$prompt` is the last prompt, `$all` what
    /// the expected messages brought, and `$outcome` the last answer to a question.
    pub(crate) fn say(self, message: Value) -> Self {
        self.step(json!({"say": message}))
    }

    /// Writes a line as it is.
    pub(crate) fn raw(self, line: &str) -> Self {
        self.step(json!({"raw": line}))
    }

    /// Writes a line of this text, so many times.
    pub(crate) fn raw_times(self, line: &str, times: u64) -> Self {
        self.step(json!({"raw": line, "times": times}))
    }

    /// Tells an update of its session.
    pub(crate) fn update(self, update: Value) -> Self {
        let params = json!({"sessionId": SESSION, "update": update});
        self.say(json!({"jsonrpc": "2.0", "method": "session/update", "params": params}))
    }

    /// A chunk of its answer.
    pub(crate) fn chunk(self, text: &str) -> Self {
        self.update(chunk(text))
    }

    /// A tool begins, or is at this state.
    pub(crate) fn tool(self, id: &str, status: &str) -> Self {
        self.update(json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": "rm -rf /tmp/x", "kind": "execute",
                           "status": status}))
    }

    /// Asks for a permission with this id, and reads until there is an answer; its outcome is `$outcome` from then on.
    pub(crate) fn ask(self, id: Value, options: &[(&str, &str)]) -> Self {
        let options: Vec<_> =
            options.iter().map(|(id, kind)| json!({"optionId": id, "name": id, "kind": kind})).collect();
        let call = json!({"toolCallId": "t", "title": "rm -rf /tmp/x", "kind": "execute"});
        let params = json!({"sessionId": SESSION, "toolCall": call, "options": options});
        self.request(id, "session/request_permission", params)
    }

    /// Asks something, and reads until there is an answer, which is `$outcome` from then on.
    pub(crate) fn request(self, id: Value, method: &str, params: Value) -> Self {
        self.say(json!({"jsonrpc": "2.0", "id": id.clone(), "method": method, "params": params}))
            .step(json!({"await": id}))
    }

    /// Waits without reading.
    pub(crate) fn sleep(self, time: Duration) -> Self {
        self.step(json!({"sleep": u64::try_from(time.as_millis()).expect("not that long")}))
    }

    /// Writes to stderr.
    pub(crate) fn stderr(self, text: &str) -> Self {
        self.step(json!({"stderr": text}))
    }

    /// Runs a shell to its end, with an empty stdin.
    pub(crate) fn run(self, script: &str) -> Self {
        self.step(json!({"run": script}))
    }

    /// Is a shell from here on, with the protocol's stdout as descriptor 3.
    pub(crate) fn become_shell(self, script: &str) -> Self {
        self.step(json!({"shell": script}))
    }

    /// Ends.
    pub(crate) fn exit(self, code: u8) -> Self {
        self.step(json!({"exit": code}))
    }

    /// Goes through these steps so many times.
    pub(crate) fn repeat(self, times: u64, steps: Self) -> Self {
        self.step(json!({"repeat": steps.0, "times": times}))
    }

    /// Goes through these steps for ever.
    pub(crate) fn forever(self, steps: Self) -> Self {
        self.step(json!({"forever": steps.0}))
    }

    /// A shell script that is the agent.
    pub(crate) fn program(&self) -> String {
        let program = std::env::current_exe().expect("this program");
        let script = Value::from(self.0.clone()).to_string().replace('\'', r"'\''");
        format!(
            "#!/bin/sh\n{SCRIPT}='{script}'\nexport {SCRIPT}\nexec '{}' --exact acp::agent::plays_its_script --nocapture 3>&1 >/dev/null\n",
            program.display()
        )
    }

    /// The provider of it.
    pub(crate) fn acp(&self) -> Acp {
        // A test program says what it runs on its stdout: the protocol has one of its own.
        let run = r#"exec "$0" --exact acp::agent::plays_its_script --nocapture 3>&1 >/dev/null"#;
        let program: OsString = std::env::current_exe().expect("this program").into();
        let script = Value::from(self.0.clone()).to_string();
        Acp::new("sh").args(["-c", run]).arg(program).env(SCRIPT, script)
    }
}

/// A chunk of an answer.
pub(crate) fn chunk(text: &str) -> Value {
    json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
}

/// In a test program that is run as an agent it is the agent. Otherwise it shows that a script is what it was.
#[test]
fn plays_its_script() {
    let Ok(script) = std::env::var(SCRIPT) else {
        let acp = Script::prompted().chunk("x").acp();
        assert!(format!("{acp:?}").contains(SCRIPT));
        return;
    };
    let steps: Vec<Value> = serde_json::from_str(&script).expect("a script");
    let stdout = File::options().write(true).open("/dev/fd/3").expect("the protocol's stdout");
    let mut player =
        Player { stdout, id: Value::Null, prompt: String::new(), told: Vec::new(), outcome: String::new() };
    player.play(&steps);
    while Player::read().is_some() {}
    std::process::exit(0);
}

struct Player {
    stdout: File,
    id: Value,
    prompt: String,
    /// What the expected messages brought.
    told: Vec<String>,
    outcome: String,
}

impl Player {
    fn play(&mut self, steps: &[Value]) {
        for step in steps {
            self.take(step);
        }
    }

    fn take(&mut self, step: &Value) {
        let (name, what) =
            step.as_object().and_then(|step| step.iter().find(|(name, _)| *name != "times")).expect("a step");
        let times = step["times"].as_u64().unwrap_or(1);
        match (&**name, what) {
            ("expect", method) => self.expect(method.as_str().expect("a method")),
            ("say", message) => {
                let line = self.filled(message);
                self.write(&line, times);
            }
            ("raw", line) => self.write(line.as_str().expect("a line"), times),
            ("await", id) => self.wait_for(id),
            ("sleep", time) => std::thread::sleep(Duration::from_millis(time.as_u64().expect("a time"))),
            #[expect(clippy::print_stderr, reason = "an agent does")]
            ("stderr", text) => eprintln!("{}", text.as_str().expect("a text")),
            ("exit", code) => {
                std::process::exit(i32::try_from(code.as_u64().expect("a code")).expect("a small one"))
            }
            ("run", script) => {
                let script = script.as_str().expect("a script");
                #[expect(clippy::disallowed_methods, reason = "it is this test program")]
                let mut shell = std::process::Command::new("sh");
                shell.arg("-c").arg(script).stdin(Stdio::null()).stdout(Stdio::null());
                assert!(shell.status().expect("a shell").success(), "{script}");
            }
            ("shell", script) => {
                use std::os::unix::process::CommandExt;
                #[expect(clippy::disallowed_methods, reason = "it is this test program")]
                let error =
                    std::process::Command::new("sh").arg("-c").arg(script.as_str().expect("a script")).exec();
                unreachable!("there is no shell: {error}");
            }
            ("repeat", steps) => {
                for _ in 0..times {
                    self.play(steps.as_array().expect("steps"));
                }
            }
            ("forever", steps) => loop {
                self.play(steps.as_array().expect("steps"));
            },
            other => unreachable!("no such step: {other:?}"),
        }
    }

    fn filled(&self, message: &Value) -> String {
        let prompt = Value::from(&*self.prompt).to_string();
        let message = message.to_string().replace("\"$id\"", &self.id.to_string());
        let quoted = |text: &str| text.replace('\\', "").replace('"', "'");
        message
            .replace("$prompt", prompt.trim_matches('"'))
            .replace("$outcome", &quoted(&self.outcome))
            .replace("$all", &quoted(&self.told.concat()))
    }

    fn write(&mut self, line: &str, times: u64) {
        let line = format!("{line}\n");
        for _ in 0..times {
            // Whoever listens may be gone.
            if self.stdout.write_all(line.as_bytes()).is_err() {
                std::process::exit(0);
            }
        }
    }

    /// The next message; none at the end of stdin.
    fn read() -> Option<Value> {
        let mut line = String::new();
        let length = std::io::stdin().lock().read_line(&mut line).expect("stdin");
        (length > 0).then(|| serde_json::from_str(&line).expect("a message"))
    }

    fn expect(&mut self, method: &str) {
        loop {
            let Some(message) = Self::read() else { std::process::exit(0) };
            if message["method"] != method {
                continue;
            }
            if let Some(id) = message.get("id") {
                self.id = id.clone();
            }
            self.told.push(message["params"].to_string());
            if let Some(blocks) = message["params"]["prompt"].as_array() {
                let texts = blocks.iter().filter_map(|block| block["text"].as_str());
                self.prompt = texts.collect::<Vec<_>>().join("|");
            }
            return;
        }
    }

    fn wait_for(&mut self, id: &Value) {
        loop {
            let Some(message) = Self::read() else { std::process::exit(0) };
            if message.get("id") == Some(id) && message.get("method").is_none() {
                let outcome = message.get("result").or(message.get("error"));
                self.outcome = outcome.expect("an answer").to_string();
                return;
            }
        }
    }
}
