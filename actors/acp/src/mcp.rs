//! MCP servers that an agent is to use beside its own.

use std::ffi::OsString;
use std::fmt;

use agent_client_protocol_schema::v1 as schema;

/// An MCP server that is handed to the agent with its session; the agent starts it, or connects to it.
///
/// `Debug` shows the names of variables and headers, not their values.
#[derive(Clone)]
pub struct McpServer {
    name: String,
    way: Way,
}

#[derive(Clone)]
enum Way {
    Stdio { command: String, args: Vec<String>, env: Vec<(String, String)> },
    Http { url: String, headers: Vec<(String, String)> },
}

impl McpServer {
    /// A server that the agent starts: `command` with its arguments. An absolute path is best, since agents differ in where
    /// they look.
    ///
    /// `SUBAGENTS_DEPTH`, and `SUBAGENTS_MAX_DEPTH` where there is a cap, are set for it beside the variables that are
    /// [added](Self::with), so that it knows its place in the tree.
    pub fn stdio(
        name: impl Into<String>,
        command: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Self { name: name.into(), way: Way::Stdio { command: command.into(), args, env: Vec::new() } }
    }

    /// A server that the agent connects to. An agent that cannot do so refuses the start.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self { name: name.into(), way: Way::Http { url: url.into(), headers: Vec::new() } }
    }

    /// Adds a variable for a server that is started, or a header for one that is connected to.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let values = match &mut self.way {
            Way::Stdio { env, .. } => env,
            Way::Http { headers, .. } => headers,
        };
        values.push((name.into(), value.into()));
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the agent has to connect to it.
    pub(crate) fn is_http(&self) -> bool {
        matches!(self.way, Way::Http { .. })
    }

    /// Its values, of which some may be secrets.
    pub(crate) fn values(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let (Way::Stdio { env: values, .. } | Way::Http { headers: values, .. }) = &self.way;
        values.iter().flat_map(|(name, value)| {
            let held = credentials(name, value);
            // A header that authorises is a secret, whatever it is called.
            let name = if held.is_empty() { name.clone() } else { format!("{name} TOKEN") };
            let held = held.into_iter().map(str::to_owned).chain([value.clone()]);
            held.map(move |value| (name.clone().into(), value.into()))
        })
    }

    /// As the protocol has it; `place` are the variables of the child's place in the tree.
    pub(crate) fn to_wire(&self, place: &[(&'static str, String)]) -> schema::McpServer {
        match &self.way {
            Way::Stdio { command, args, env } => {
                let place = place.iter().map(|(name, value)| (*name, &**value));
                let env = env.iter().map(|(name, value)| (&**name, &**value)).chain(place);
                let env = env.map(|(name, value)| schema::EnvVariable::new(name, value)).collect();
                let server = schema::McpServerStdio::new(&*self.name, command.clone());
                schema::McpServer::Stdio(server.args(args.clone()).env(env))
            }
            Way::Http { url, headers } => {
                let headers = headers.iter().map(|(name, value)| schema::HttpHeader::new(&**name, &**value));
                let server = schema::McpServerHttp::new(&*self.name, &**url);
                schema::McpServer::Http(server.headers(headers.collect::<Vec<_>>()))
            }
        }
    }
}

/// What in the value of a header that authorises is the secret: neither its scheme nor a name, which are words like others.
/// Nothing of any other header.
fn credentials<'a>(header: &str, value: &'a str) -> Vec<&'a str> {
    let parameters = |value: &'a str| {
        let parts = value.split([';', ',', ' ']).filter_map(|part| part.split_once('='));
        parts.map(|(_, value)| value.trim().trim_matches('"')).filter(|value| !value.is_empty())
    };
    match header.to_ascii_lowercase().as_str() {
        "authorization" | "proxy-authorization" => {
            let value = value.trim();
            let credentials = value.split_once(char::is_whitespace).map_or(value, |(_, rest)| rest.trim());
            // Some schemes have parameters, of which one is the secret.
            std::iter::once(credentials).chain(parameters(credentials)).collect()
        }
        "cookie" => parameters(value).collect(),
        _ => Vec::new(),
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("McpServer");
        shown.field("name", &self.name);
        let values = match &self.way {
            Way::Stdio { command, args, env } => {
                // Arguments and queries may hold secrets.
                shown.field("command", command).field("args", &args.len());
                env
            }
            Way::Http { url, headers } => {
                shown.field("url", &url.split(['?', '#']).next().unwrap_or_default());
                headers
            }
        };
        shown.field("with", &values.iter().map(|(name, _)| name).collect::<Vec<_>>()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_goes_over_the_wire_with_its_place_in_the_tree() {
        let place = [("SUBAGENTS_DEPTH", "2".to_owned())];
        let server = McpServer::stdio("files", "/bin/files", ["--ro"]).with("ROOT", "/srv");
        assert_eq!(
            serde_json::to_value(server.to_wire(&place)).unwrap(),
            serde_json::json!({
                "name": "files", "command": "/bin/files", "args": ["--ro"],
                "env": [{"name": "ROOT", "value": "/srv"}, {"name": "SUBAGENTS_DEPTH", "value": "2"}],
            })
        );
        let server = McpServer::http("web", "http://127.0.0.1:1/mcp").with("Authorization", "Bearer hunter2");
        assert_eq!(
            serde_json::to_value(server.to_wire(&place)).unwrap(),
            serde_json::json!({
                "type": "http", "name": "web", "url": "http://127.0.0.1:1/mcp",
                "headers": [{"name": "Authorization", "value": "Bearer hunter2"}],
            })
        );
        assert!(!format!("{server:?}").contains("hunter2"), "{server:?}");
        let secrets = subagents_process::Secrets::of(server.values());
        assert_eq!(secrets.mask("said Bearer hunter2!"), "said [Authorization TOKEN]!");
        assert_eq!(secrets.mask("said hunter2!"), "said [Authorization TOKEN]!");
    }

    #[test]
    fn f07_of_a_header_that_authorises_only_the_secret_is_masked() {
        for (header, value, said, shown) in [
            ("Authorization", "Bearer hunter2x", "Bearer hunter2x", "[Authorization TOKEN]"),
            (
                "Authorization",
                "Bearer hunter2x",
                "Authorization: Bearer <token>",
                "Authorization: Bearer <token>",
            ),
            ("authorization", "hunter2x", "hunter2x", "[authorization TOKEN]"),
            ("Proxy-Authorization", "Digest hunter2x", "Digest", "Digest"),
            ("Cookie", "session=hunter2x; theme=c2hhZG93==", "session theme", "session theme"),
            (
                "Cookie",
                "session=hunter2x; theme=c2hhZG93==",
                "hunter2x c2hhZG93==",
                "[Cookie TOKEN] [Cookie TOKEN]",
            ),
            ("Authorization", "  Bearer hunter2x", "hunter2x", "[Authorization TOKEN]"),
            ("Authorization", "Token token=hunter2x", "token hunter2x", "token [Authorization TOKEN]"),
            (
                "Authorization",
                "Digest username=\"somebody\", response=\"hunter2x\"",
                "Digest username response hunter2x",
                "Digest username response [Authorization TOKEN]",
            ),
            ("X-Colour", "purple", "purple", "purple"),
        ] {
            let server = McpServer::http("web", "http://127.0.0.1:1/mcp").with(header, value);
            let secrets = subagents_process::Secrets::of(server.values());
            assert_eq!(secrets.mask(said), shown, "{header}: {value}");
        }
    }
}
