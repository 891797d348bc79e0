//! What a socket is called: its process, a number that no other host has, and how far it is.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// Somebody listens, or did.
pub(crate) const LISTENS: &str = ".sock";
/// Nobody listens yet. It says nothing of its host, and is looked at by nobody.
pub(crate) const BINDS: &str = ".bind";

/// A name without its ending, which nobody else takes: processes of two namespaces can have the same id and the same folder.
pub(crate) fn fresh(pid: u32) -> String {
    format!("{pid}-{:016x}", RandomState::new().build_hasher().finish())
}

/// The process of a name with this ending.
pub(crate) fn pid(name: &str, ending: &str) -> Option<u32> {
    let (pid, number) = name.strip_suffix(ending)?.split_once('-')?;
    let plain = number.len() == 16 && number.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let digits = pid.bytes().all(|b| b.is_ascii_digit());
    (plain && digits).then(|| pid.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_process_and_whether_it_is_listened_at() {
        let (one, other) = (fresh(42), fresh(42));
        assert_ne!(one, other);
        assert_eq!(pid(&format!("{one}{LISTENS}"), LISTENS), Some(42));
        assert_eq!(pid(&format!("{one}{BINDS}"), LISTENS), None);
        assert_eq!(pid(&format!("{one}{BINDS}"), BINDS), Some(42));
        for name in [
            "42.sock",
            "42-0.sock",
            "x-0123456789abcdef.sock",
            "+1-0123456789abcdef.sock",
            "-0123456789abcdef.sock",
            "42-0123456789abcdeg.sock",
            "42-0123456789ABCDEF.sock",
            "4294967296-0123456789abcdef.sock",
            "notes.txt",
        ] {
            assert_eq!(pid(name, LISTENS), None, "{name}");
        }
    }
}
