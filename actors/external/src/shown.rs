//! What a program says, made fit to be shown.

use std::borrow::Cow;

use subagents_process::Secrets;
use subagents_seam::{bounded, sanitised};

/// More of it is not looked at: what is shown is far shorter.
const LOOKED_AT: usize = 64 * 1024;

/// At most `limit` bytes of foreign text, without control characters, secrets masked.
///
/// Masked before it is cut, since a secret is known as a whole only, and again after it is cleaned, which may put one
/// together.
pub fn shown(text: &str, secrets: &Secrets, limit: usize) -> String {
    let near = &text[..text.floor_char_boundary(LOOKED_AT)];
    let masked = if near.len() < text.len() {
        // What may be the beginning of a secret waits for its end, which is not looked at.
        Cow::Owned(String::from_utf8_lossy(&secrets.masker().push(near.as_bytes())).into_owned())
    } else {
        secrets.mask(near)
    };
    let clean = sanitised(&masked);
    bounded(secrets.mask(&clean).trim(), limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f07_a_secret_is_masked_before_it_is_cut_and_after_it_is_cleaned() {
        let secret = "sk-ant-0123456789".repeat(10);
        let secrets = Secrets::of([("MY_KEY".into(), secret.clone().into())]);
        let torn = format!("{}\u{1b}[0m{}\u{200b}{}", &secret[..9], &secret[9..50], &secret[50..]);
        for said in [secret.clone(), secret.repeat(3), format!("{}{secret}", "x".repeat(83)), torn.clone()] {
            let shown = shown(&format!(" {said} "), &secrets, 100);
            assert!(shown.contains("[MY_KEY]") && !shown.contains("sk-ant"), "{shown}");
        }
        assert_eq!(shown(&torn, &secrets, 100), "[MY_KEY]");
        assert_eq!(shown("\u{1b}[31mred\u{7}\n", &secrets, 100), "red");
        assert!(shown(&"é".repeat(1_000_000), &secrets, 50).len() <= 50);
        for padding in LOOKED_AT - 30..LOOKED_AT {
            let said = format!("{}{secret}{}", " ".repeat(padding), " ".repeat(LOOKED_AT));
            assert_eq!(shown(&said, &secrets, 100), "", "{padding}");
        }
    }
}
