//! The keys of a provider of kind `acp`.

use crate::config::{
    document::{Item, Value},
    error::{ConfigFaultKind, Faults},
    nearest,
    section::{self, Section, Wrong, quoted},
};
use std::{fmt, num::NonZeroU32, str::FromStr};
use subagents_acp::{Acp, McpServer, Permission};

/// What only an agent has.
#[derive(Clone, Debug, Default)]
pub(super) struct AcpConfig {
    pub(super) permission: Policy,
    pub(super) mode: Option<String>,
    pub(super) model: Option<String>,
    auth_method: Option<String>,
    persona: bool,
    depth_limit: bool,
    schema_attempts: Option<NonZeroU32>,
    mcp_servers: Vec<McpServer>,
}

/// Who decides when an agent asks for a permission: a file has no callback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Everything is refused.
    #[default]
    Reject,
    /// Everything is allowed.
    Allow,
}

impl Policy {
    const ALL: [Self; 2] = [Self::Reject, Self::Allow];

    /// As it is written in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Allow => "allow",
        }
    }

    fn read(item: &Item) -> Result<Self, Wrong> {
        section::text(item)?.parse().map_err(|why: String| item.wrong(why))
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::as_str);
        Self::ALL.into_iter().find(|policy| policy.as_str() == text).ok_or_else(|| {
            let near = nearest(text, &names).map(|near| format!("did you mean `{near}`?"));
            near.unwrap_or_else(|| format!("it is one of {}", quoted(&names)))
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AcpConfig {
    pub(super) fn read(table: &mut Section, faults: &mut Faults) -> Self {
        Self {
            permission: table.get("permission", faults, Policy::read).unwrap_or_default(),
            mode: table.get("mode", faults, word),
            model: table.get("model", faults, word),
            auth_method: table.get("auth_method", faults, word),
            persona: table.get("persona", faults, section::boolean).unwrap_or_default(),
            depth_limit: table.get("depth_limit", faults, section::boolean).unwrap_or_default(),
            schema_attempts: table.get("schema_attempts", faults, |item| {
                let attempts = section::count(100)(item)?;
                NonZeroU32::try_from(attempts).map_err(|_| item.wrong("give a whole number from 1 to 100"))
            }),
            mcp_servers: servers(table, faults),
        }
    }

    pub(super) fn apply(&self, mut acp: Acp) -> Acp {
        acp = acp.persona(self.persona).depth_limit(self.depth_limit).permission(match self.permission {
            Policy::Reject => Permission::Reject,
            Policy::Allow => Permission::Allow,
        });
        if let Some(mode) = &self.mode {
            acp = acp.mode(mode);
        }
        if let Some(model) = &self.model {
            acp = acp.model(model);
        }
        if let Some(method) = &self.auth_method {
            acp = acp.auth_method(method);
        }
        if let Some(attempts) = self.schema_attempts {
            acp = acp.schema_attempts(attempts);
        }
        self.mcp_servers.iter().cloned().fold(acp, Acp::mcp_server)
    }
}

fn word(item: &Item) -> Result<String, Wrong> {
    let text = section::text(item)?;
    if text.trim().is_empty() { Err(item.wrong("it is empty; leave it out, or say which")) } else { Ok(text) }
}

fn servers(table: &mut Section, faults: &mut Faults) -> Vec<McpServer> {
    let mut servers = Vec::new();
    for (path, entry) in table.section("mcp_servers", faults).into_iter().flat_map(Section::into_named) {
        let (name, at) = (entry.key.clone(), entry.at.clone());
        let Some(mut server) = Section::open(path.clone(), entry.at, entry.item, faults) else { continue };
        let command = server.get("command", faults, super::command);
        let url = server.get("url", faults, address);
        let read = match (command, url) {
            (Some(command), None) => {
                let env = server.get("env", faults, section::variables).unwrap_or_default();
                let (program, args) = command
                    .split_first()
                    .map_or((String::new(), &[][..]), |(first, rest)| (first.clone(), rest));
                Some(env.into_iter().fold(McpServer::stdio(name, program, args), |server, (name, value)| {
                    server.with(name, value)
                }))
            }
            (None, Some(url)) => {
                let headers = server.get("headers", faults, headers).unwrap_or_default();
                Some(
                    headers
                        .into_iter()
                        .fold(McpServer::http(name, url), |server, (name, value)| server.with(name, value)),
                )
            }
            (Some(_), Some(_)) => {
                let why = format!("`{path}` has both a `command` and a `url`; it is started or connected to");
                faults.push(ConfigFaultKind::InvalidValue, &at, why);
                None
            }
            (None, None) => {
                let why = format!(
                    "`{path}` has neither a `command` nor a `url`; add one, like command = [\"some-server\"]"
                );
                faults.push(ConfigFaultKind::MissingKey, &at, why);
                None
            }
        };
        server.close(faults);
        servers.extend(read);
    }
    servers
}

fn address(item: &Item) -> Result<String, Wrong> {
    let text = section::text(item)?;
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let right = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    if right && text.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(text);
    }
    Err(item.wrong("give an address like \"http://127.0.0.1:8000/mcp\""))
}

/// Names and values; no message holds a value.
fn headers(item: &Item) -> Result<Vec<(String, String)>, Wrong> {
    let Value::Table(entries) = &item.value else {
        return Err(item.expected("a table of strings, like { Authorization = \"Bearer …\" }"));
    };
    let headers = entries.iter().map(|entry| {
        let named = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if entry.key.is_empty() || !entry.key.chars().all(named) {
            let why = "that is no name of a header: use letters, digits and `-`".to_owned();
            return Err(Wrong { at: entry.at.clone(), why });
        }
        let value = section::text(&entry.item)?;
        if value.chars().any(char::is_control) {
            return Err(entry.item.wrong("a header is one line, without control characters"));
        }
        Ok((entry.key.clone(), value))
    });
    headers.collect()
}
