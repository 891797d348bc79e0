//! The Python SDK as a client.

use super::expectations::{Host, Scenario};
use super::play::Hall;

/// How a host plays each scenario; once, as a rule.
pub(crate) fn manners(host: &Host) -> &'static [&'static str] {
    // With the handshake of old, and with what came after it where the server has that.
    if host.name == "mcp-python" { &["auto", "legacy"] } else { &[""] }
}

pub(crate) async fn play(_hall: &Hall<'_>, _scenario: &Scenario, _manner: &str) -> Result<String, String> {
    Err(std::future::ready("not yet").await.to_owned())
}
