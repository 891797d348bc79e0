//! Who is served. Pure.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderMap};

/// Where the server is.
const PATH: &str = "/mcp";
/// A shorter token can be guessed.
const SHORTEST: usize = 16;
/// A longer one fits in no address.
const LONGEST: usize = 256;

/// What a client has to show: other users of this machine reach the loopback as well, and so does any page in a browser.
///
/// It comes in the header `Authorization: Bearer TOKEN`, or, from a client that takes no more than an address, in the path:
/// `/TOKEN/mcp`. `Debug` does not show it.
#[derive(Clone)]
pub struct HttpToken(Arc<str>);

/// Why a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("a token has 16 to 256 letters, digits or any of `-._~`")]
pub struct HttpTokenError;

impl HttpTokenError {
    /// `TOKEN_NOT_USABLE`.
    pub fn code(self) -> &'static str {
        let Self = self;
        "TOKEN_NOT_USABLE"
    }
}

impl HttpToken {
    /// A new one, of the system's randomness: 64 hexadecimal digits.
    pub fn random() -> Self {
        let [a, b] = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
        Self(format!("{}{}", a.simple(), b.simple()).into())
    }

    /// This one.
    ///
    /// # Errors
    /// What is shorter than 16 or longer than 256 characters, or has others than letters, digits and `-._~`, which need no
    /// quotes anywhere.
    pub fn new(text: &str) -> Result<Self, HttpTokenError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let fits = (SHORTEST..=LONGEST).contains(&text.len());
        if fits && text.bytes().all(plain) { Ok(Self(text.into())) } else { Err(HttpTokenError) }
    }

    /// The token itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address that needs nothing else: `http://127.0.0.1:8765/TOKEN/mcp`.
    pub fn url(&self, address: SocketAddr) -> String {
        format!("http://{address}/{}{PATH}", self.0)
    }

    /// In the same time for whatever is like it and whatever is not.
    fn is(&self, shown: &[u8]) -> bool {
        constant_time_eq::constant_time_eq(self.0.as_bytes(), shown)
    }
}

impl fmt::Debug for HttpToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpToken(..)")
    }
}

/// What a request may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Authorization {
    Authorized,
    /// It has not shown the token.
    Unauthorized,
    /// There is nothing there.
    NotFound,
}

/// By its path, without the query, and its headers.
pub(super) fn authorize(token: &HttpToken, path: &str, headers: &HeaderMap) -> Authorization {
    let path = path.strip_suffix('/').unwrap_or(path);
    let Some(shown) = path.strip_suffix(PATH) else { return Authorization::NotFound };
    let shown = match shown.strip_prefix('/') {
        Some(shown) => Some(shown.as_bytes()),
        None if shown.is_empty() => bearer(headers),
        None => return Authorization::NotFound,
    };
    match shown {
        Some(shown) if token.is(shown) => Authorization::Authorized,
        _ => Authorization::Unauthorized,
    }
}

/// What it shows in its one `Authorization`.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?.as_bytes(), values.next()) else { return None };
    let (scheme, shown) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| shown.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, value.parse().expect("a value"))).collect()
    }

    #[test]
    fn the_token_is_shown_in_the_header_or_in_the_path_and_nothing_else_is_let_in() {
        let token = HttpToken::new("0123456789abcdef").expect("a token");
        let asked = |path: &str, values: &[&str]| authorize(&token, path, &headers(values));
        for (path, values) in [
            ("/mcp", &["Bearer 0123456789abcdef"][..]),
            ("/mcp/", &["bearer  0123456789abcdef "]),
            ("/0123456789abcdef/mcp", &[]),
            ("/0123456789abcdef/mcp/", &["Bearer another"]),
        ] {
            assert_eq!(asked(path, values), Authorization::Authorized, "{path} {values:?}");
        }
        for (path, values) in [
            ("/mcp", &[][..]),
            ("/mcp", &["0123456789abcdef"]),
            ("/mcp", &["Basic 0123456789abcdef"]),
            ("/mcp", &["Bearer 0123456789abcde"]),
            ("/mcp", &["Bearer 0123456789abcdef0"]),
            ("/mcp", &["Bearer 0123456789abcdef", "Bearer 0123456789abcdef"]),
            ("/mcp", &["Bearer "]),
            ("/mcp", &["Bear"]),
            ("//mcp", &[]),
            ("/0123456789ABCDEF/mcp", &[]),
            ("/x/0123456789abcdef/mcp", &[]),
        ] {
            assert_eq!(asked(path, values), Authorization::Unauthorized, "{path} {values:?}");
        }
        for path in ["", "/", "/mcpx", "/x", "mcp", "/.well-known/oauth-protected-resource", "xmcp"] {
            assert_eq!(asked(path, &["Bearer 0123456789abcdef"]), Authorization::NotFound, "{path}");
        }
    }

    #[test]
    fn a_token_is_long_plain_and_hidden() {
        let random = HttpToken::random();
        assert_eq!(random.as_str().len(), 64);
        assert_ne!(random.as_str(), HttpToken::random().as_str());
        assert_eq!(HttpToken::new(random.as_str()).expect("a token").as_str(), random.as_str());
        assert!(!format!("{random:?}").contains(random.as_str()));
        let address = "127.0.0.1:8765".parse().expect("an address");
        assert_eq!(random.url(address), format!("http://127.0.0.1:8765/{}/mcp", random.as_str()));
        for wrong in ["", "too-short", "0123456789abcde ", "0123456789/abcdef", "0123456789abcdéf"] {
            assert_eq!(HttpToken::new(wrong).err(), Some(HttpTokenError), "{wrong}");
        }
        assert!(HttpToken::new(&"x".repeat(256)).is_ok() && HttpToken::new(&"x".repeat(257)).is_err());
    }
}
