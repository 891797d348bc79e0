//! Sizes as people write them: `1048576`, `64KiB`, `16MiB`.

/// The units, each with its bytes. Those of ten as well, since people write them, and mean them.
const UNITS: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

/// What is right, where something is not.
pub(super) const EXAMPLE: &str = "write whole bytes, like 65536, or a unit, like \"64KiB\" or \"16MiB\"";

/// A whole number of bytes, or one with a unit; never zero.
pub(super) fn parse(text: &str) -> Option<usize> {
    let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (digits, bytes) = unit.unwrap_or((text, 1));
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let size = digits.parse::<u64>().ok()?.checked_mul(bytes)?;
    usize::try_from(size).ok().filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_size_has_a_unit_or_is_bytes() {
        for (text, size) in
            [("1", 1), ("65536", 65_536), ("12B", 12), ("64KiB", 65_536), ("16MiB", 16 << 20), ("2kB", 2_000)]
        {
            assert_eq!(parse(text), Some(size), "{text}");
        }
        for text in
            ["", "0", "0KiB", "-1", "+1", "1.5MiB", "1 MiB", "16mib", "MiB", "1K", "99999999999GiB", "é"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
