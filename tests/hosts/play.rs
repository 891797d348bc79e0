//! How each scenario is played with a host that has a model: what its model says, what happens meanwhile, and what has to be
//! true of it.

use super::expectations::{Host, Scenario};
use super::hall::Hall;
use super::http::Server;
use super::stage::{GONE, Stage, until};
use super::{conformance, inspector, python};
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use subagents::bounded;
use subagents_testkit::model::{FakeModel, ModelRequest, Reply};

/// What a host shows to a server over HTTP.
const TOKEN: &str = "a-token-of-32-characters-of-tests";
const END: &str = "The end of it.";

/// What came of a scenario.
#[derive(Debug)]
pub(crate) struct Played {
    /// What is not as it should be; none where all is.
    pub(crate) faults: Vec<String>,
    pub(crate) all: Duration,
}

/// One host that plays one scenario.
pub(crate) struct Play<'a> {
    pub(crate) host: &'a Host,
    pub(crate) scenario: &'a Scenario,
    pub(crate) installed: &'a Path,
}

impl Play<'_> {
    /// Never panics over what a host does: each fault is told.
    pub(crate) async fn play(&self) -> Played {
        let begun = Instant::now();
        let mut faults = Vec::new();
        for manner in python::manners(self.host) {
            let of = |fault: String| if manner.is_empty() { fault } else { format!("{manner}: {fault}") };
            faults.extend(self.once(manner).await.into_iter().map(of));
        }
        Played { faults, all: begun.elapsed() }
    }

    async fn once(&self, manner: &str) -> Vec<String> {
        let stage = match Stage::new() {
            Ok(stage) => Arc::new(stage),
            Err(error) => return vec![format!("it could not be set up: {error}")],
        };
        let mut faults = Vec::new();
        let expected = self.host.expected(self.scenario);
        match self.act(&stage, manner, &mut faults).await {
            Ok(ends_as) if ends_as == expected => {}
            Ok(ends_as) => faults.push(format!("expected {expected:?}, and it was {ends_as:?}")),
            Err(fault) => faults.push(fault),
        }
        let gone = until("nothing is alive of it", GONE, || Ok(stage.alive().is_empty())).await;
        if let Err(fault) = gone {
            faults.push(format!("{fault}: {:?}", stage.alive()));
        }
        stage.kill();
        faults
    }

    async fn act(
        &self,
        stage: &Arc<Stage>,
        manner: &str,
        faults: &mut Vec<String>,
    ) -> Result<String, String> {
        let told = |error: std::io::Error| format!("it could not be set up: {error}");
        let reader = Reader {
            stage: Arc::clone(stage),
            waits: ["gives-up", "server-killed"].contains(&self.scenario.name),
            shares: ["http", "nested-http"].contains(&self.scenario.name),
        };
        let seen = Seen::default();
        let noted = seen.clone();
        let model = FakeModel::builder().script(move |request| reader.reply(request, &noted));
        let model = model.start().await.map_err(|error| format!("no model server: {error}"))?;
        stage.set(self.host, model.url()).map_err(told)?;
        let hall = Hall { stage: Arc::clone(stage), env: stage.env(self.host, model.url()), play: self };
        let mut provider = stage.obedient();
        match self.scenario.name {
            "times-out" => provider.timeout = Some("3s"),
            "nested" | "nested-http" => provider = hall.itself(TOKEN),
            "conformance" => provider.tool = conformance::TOOL,
            _ => {}
        }
        let table = self.host.told.get(self.scenario.name).map_or("", |told| &told.table);
        stage.configure(&provider, table).map_err(told)?;
        let ended = match &self.host.tool {
            Some(tool) => self.converse(&hall, tool, &model).await,
            None => match &*self.host.name {
                "inspector" => inspector::play(&hall, self.scenario).await,
                "conformance" => conformance::play(&hall, self.scenario).await,
                _ => python::play(&hall, self.scenario, manner).await,
            },
        };
        faults.extend(seen.take());
        model.stop().await;
        ended
    }

    /// With a model.
    async fn converse(&self, hall: &Hall<'_>, tool: &str, model: &FakeModel) -> Result<String, String> {
        let (mut add, mut ask, mut env) = (self.host.add.clone(), self.host.ask.clone(), hall.env.clone());
        let server = match self.scenario.name {
            "http" => Some(Server::start(hall, Some(TOKEN), None).await?),
            "nested-http" => Some(Server::start(hall, Some(TOKEN), Some("1")).await?),
            _ => None,
        };
        if let Some(told) = self.host.told.get(self.scenario.name) {
            let url = server.as_ref().map_or("", |server| &*server.url);
            let filled = |text: &String| text.replace("@URL@", url).replace("@TOKEN@", TOKEN);
            add = told.add.as_ref().map(|add| add.iter().map(filled).collect()).or(add);
            ask.extend(told.ask.iter().map(filled));
            env.extend(told.env.iter().map(|(name, value)| (name.clone(), filled(value).into())));
        }
        if self.scenario.name == "nested" {
            env.insert("SUBAGENTS_MAX_DEPTH".to_owned(), "1".into());
        }
        if self.scenario.name == "one" {
            let told = hall.stage.start(&hall.program(), &["--version".to_owned()], &env, "")?.end().await?;
            if !told.out.contains(self.host.version()) {
                return Err(format!("it is not {}: {told:?}", self.host.version()));
            }
        }
        if let Some(add) = add {
            let added = hall.stage.start(&hall.program(), &add, &env, "")?.end().await?;
            added.well().map_err(|fault| format!("{}: {fault}", add.join(" ")))?;
        }
        let mut live = hall.stage.start(&hall.program(), &ask, &env, &self.prompt(tool))?;
        let results = || model.requests().iter().flat_map(results_of).collect::<Vec<_>>();
        let read = |part: &str| {
            let results = results();
            let reads = results.iter().any(|result| result.contains(part));
            reads.then_some(()).ok_or_else(|| format!("{part:?} is not what the model read: {results:?}"))
        };
        match self.scenario.name {
            "cancelled" => {
                let ended = hall.interrupted(live).await?;
                let went_on = ended.out.contains(END);
                return if went_on {
                    Err(format!("it went on: {ended:?}"))
                } else {
                    Ok("nothing left".to_owned())
                };
            }
            "killed" => {
                hall.killed(live).await?;
                return Ok("nothing left".to_owned());
            }
            "server-killed" => hall.server_killed(&mut live).await?,
            "seen" => hall.killed_from_outside(&mut live).await?,
            _ => {}
        }
        let ended = live.end().await?.well()?;
        if let Some(server) = server {
            server.stop(hall).await?;
        }
        let fault = |what: &str| Err(format!("{what}; {:?}, {:?}", results(), bounded(&ended.out, 1000)));
        if !ended.out.contains(END) {
            return fault("it did not say what its model said in the end");
        }
        match self.scenario.name {
            "one" | "http" => {
                if !model.requests().iter().any(|request| request.offers(tool)) {
                    return fault("the tool was not offered to the model");
                }
                read("The child says 42.")?;
                Ok("answered".to_owned())
            }
            "five" | "five-told" => {
                // In one turn, each where its call was.
                let all_of = |request: &ModelRequest| results_of(request).len() == 5;
                let Some(request) = model.requests().into_iter().find(all_of) else {
                    return fault("the model did not read five answers at once");
                };
                let answers = results_of(&request);
                let says = |how: &str| {
                    let mut numbered = (1..).zip(&answers);
                    numbered.all(|(n, answer)| answer.contains(&format!("number {n}, {how}")))
                };
                if !says("") {
                    return fault("these are not the answers to its calls");
                }
                let all = says("side by side");
                Ok(if all { "side by side" } else { "one by one" }.to_owned())
            }
            "fails" => {
                read("exit code 3")?;
                read("no luck today")?;
                Ok("error with its reason".to_owned())
            }
            "times-out" => {
                hall.has_hung()?;
                read("ran out of time")?;
                read("timed-out")?;
                Ok("error that says so".to_owned())
            }
            "server-killed" => {
                if results().is_empty() || read("runId").is_ok() {
                    return fault("that the server is gone is not told");
                }
                Ok("host goes on".to_owned())
            }
            "seen" => {
                read("was cancelled")?;
                Ok("error that says so".to_owned())
            }
            "gives-up" => {
                hall.has_hung()?;
                // What it is told, it is told by the host.
                let answered =
                    results().is_empty() || results().iter().any(|result| result.contains("runId"));
                if answered {
                    return fault("the host did not give the call up");
                }
                Ok("child ended".to_owned())
            }
            "nested" | "nested-http" => {
                let deep = results().iter().any(|result| result.contains("DEPTH_EXCEEDED"));
                read("The inner end.")?;
                Ok(if deep { "refused" } else { "not refused" }.to_owned())
            }
            other => Err(format!("{} does not play {other}", self.host.name)),
        }
    }

    fn prompt(&self, tool: &str) -> String {
        let call = |prompt: &str| call(tool, prompt);
        let calls = match self.scenario.name {
            "one" | "http" => call("answer The child says 42."),
            "five" | "five-told" => {
                (1..=5).map(|n| call(&format!("together {n}"))).collect::<Vec<_>>().join(" %% ")
            }
            "fails" => call("fails"),
            "nested" | "nested-http" => {
                let inner = format!("Please go on. [[tool:{}]] [[reply:The inner end.]]", call("Too deep."));
                call(&inner)
            }
            _ => call("hangs"),
        };
        let search = match (self.scenario.name, &self.host.search) {
            ("one" | "http", Some(search)) => {
                format!("[[tool:{search} {{\"query\": \"delegate to a subagent\"}}]] ")
            }
            _ => String::new(),
        };
        format!("Please go on. {search}[[tool:{calls}]] [[reply:{END}]]")
    }
}

/// A call of the tool, in a directive.
fn call(tool: &str, prompt: &str) -> String {
    let arguments = json!({"description": "a short task", "prompt": prompt}).to_string();
    // Directives within are for another model.
    format!("{tool} {}", arguments.replace('[', "\\u005b").replace(']', "\\u005d"))
}

fn results_of(request: &ModelRequest) -> Vec<String> {
    request.tool_results().into_iter().map(str::to_owned).collect()
}

/// What was seen while the model read a result.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn note(&self, fault: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The model, which looks up from what it reads.
struct Reader {
    stage: Arc<Stage>,
    /// Whether it gives what was delegated to time to end, and the host time to say that it should.
    waits: bool,
    /// Whether there is one server, which the host has not started.
    shares: bool,
}

impl Reader {
    /// Whoever reads an answer may rely on it that nobody is at work on it any more.
    fn reply(&self, request: &ModelRequest, seen: &Seen) -> Reply {
        if !request.tool_results().is_empty() {
            let begun = Instant::now();
            let mut alive = self.stage.children();
            while self.waits && !alive.is_empty() && begun.elapsed() < GONE {
                tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(20)));
                alive = self.stage.children();
            }
            if let Some(fault) = self.stage.server().err().filter(|_| self.shares) {
                seen.note(fault);
            }
            if !alive.is_empty() {
                seen.note(format!("alive while the model reads the result: {alive:?}"));
            }
        }
        Reply::from_prompt(request)
    }
}
