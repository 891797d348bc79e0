/// The longest diagnostic, in UTF-8 bytes (SPEC 17.6).
pub(crate) const DIAGNOSTIC_BYTES: usize = 4096;
const CUT: &str = "… (cut)";

/// Cuts `text` to at most `limit` UTF-8 bytes, on a character boundary, the visible suffix included (SPEC 17.6,
/// 23.10).
///
/// A limit below the suffix's own ten bytes gives the longest prefix that fits, without a suffix.
///
/// ```
/// assert_eq!(subagents_seam::bounded("short", 100), "short");
/// let cut = subagents_seam::bounded(&"é".repeat(100), 50);
/// assert!(cut.len() <= 50 && cut.ends_with("… (cut)"));
/// ```
pub fn bounded(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let suffix = if limit > CUT.len() { CUT } else { "" };
    let end = text.floor_char_boundary(limit - suffix.len());
    format!("{}{suffix}", &text[..end])
}

/// Makes foreign text safe to show. Escape sequences, control characters and characters that would reorder or hide
/// what follows them go; line feeds and tabs stay.
///
/// ```
/// assert_eq!(subagents_seam::sanitised("\u{1b}[31mred\u{1b}[0m\r\nnext"), "red\nnext");
/// ```
pub fn sanitised(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\n' | '\t' => out.push(c),
            // Line and paragraph separators.
            '\u{2028}' | '\u{2029}' => out.push('\n'),
            c if c.is_control() || reorders(c) => {}
            c => out.push(c),
        }
    }
    out
}

/// Bidirectional controls, zero-width marks, fillers, and characters that only programs see: they change how the text around
/// them reads, or hide some in it. The two that choose between the looks of an emoji stay.
fn reorders(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Whether there is nothing to read in it.
pub(crate) fn is_blank(text: &str) -> bool {
    for c in text.chars() {
        match c {
            // What follows may belong to it.
            '\u{1b}' => return sanitised(text).trim().is_empty(),
            c if c.is_whitespace() || c.is_control() || reorders(c) => {}
            _ => return false,
        }
    }
    true
}

fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        // CSI: parameters, then one final byte.
        Some('[') => {
            for c in chars.by_ref() {
                if ('\u{40}'..='\u{7e}').contains(&c) {
                    break;
                }
            }
        }
        // OSC, DCS, SOS, PM, APC: up to BEL or ST. One without an end must not swallow the rest of a long text.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            for _ in 0..4096 {
                match chars.next() {
                    Some('\u{7}') | None => break,
                    Some('\u{1b}') => {
                        chars.next_if_eq(&'\\');
                        break;
                    }
                    Some(_) => {}
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{bounded, sanitised};

    #[test]
    fn a_cut_is_within_the_limit_on_a_boundary_and_visible() {
        for limit in 0..60 {
            let cut = bounded(&"añ日本".repeat(20), limit);
            assert!(cut.len() <= limit, "{limit}: {cut}");
            assert!(limit <= 10 || cut.ends_with("(cut)"));
        }
    }

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        for (raw, clean) in [
            ("\u{1b}]0;title\u{7}text", "text"),
            ("\u{1b}]8;;http://x\u{1b}\\link", "link"),
            ("a\u{8}b\u{0}c", "abc"),
            ("\u{202e}evil", "evil"),
            ("\u{1b}", ""),
            ("tab\tline\n", "tab\tline\n"),
            ("\u{9b}31mC1", "31mC1"),
            ("a\u{2028}b\u{61c}c\u{ad}d\u{e0041}e", "a\nbcde"),
            (
                "a\u{34f}b\u{115f}\u{1160}c\u{3164}d\u{fe00}\u{fe0d}e\u{206a}f\u{fff9}g\u{1d173}h\u{180b}i",
                "abcdefghi",
            ),
            // An emoji, and how it is to look.
            ("\u{2764}\u{fe0f}", "\u{2764}\u{fe0f}"),
        ] {
            assert_eq!(sanitised(raw), clean, "{raw:?}");
        }
    }
}
