//! Durations as people write them: `500ms`, `30s`, `5m`, `1h30m`.

use std::time::Duration;

/// The units, the largest first, each with its milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a duration as people write it: whole numbers with units, the larger unit first; never zero.
///
/// ```
/// use std::time::Duration;
/// use subagents::config::parse_duration;
///
/// assert_eq!(parse_duration("1h30m"), Ok(Duration::from_mins(90)));
/// assert!(parse_duration("30").is_err_and(|why| why.contains("it has no unit")));
/// ```
///
/// # Errors
/// What would be right, in words.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let total = millis(text).ok_or_else(|| {
        let unit = if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            " (it has no unit)"
        } else {
            ""
        };
        format!("that is no duration{unit}; write whole numbers with h, m, s or ms, like `500ms`, `30s`, `5m` or `1h30m`")
    })?;
    if total == 0 {
        return Err("zero leaves no time at all; write it like `30s`, or leave it out".to_owned());
    }
    Ok(Duration::from_millis(total))
}

fn millis(mut text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut units = UNITS.as_slice();
    while !text.is_empty() {
        let (digits, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
        let (unit, rest) = rest.split_at(rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()));
        // Each unit once, and none that is larger than the one before it.
        let place = units.iter().position(|(name, _)| *name == unit)?;
        let part = digits.parse::<u64>().ok()?.checked_mul(units[place].1)?;
        total = total.checked_add(part)?;
        units = &units[place + 1..];
        text = rest;
    }
    (units.len() < UNITS.len()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::parse_duration;

    #[test]
    fn what_people_write_is_read() {
        for (text, ms) in [
            ("500ms", 500),
            ("1ms", 1),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2h", 7_200_000),
            ("1m1s1ms", 61_001),
            ("90m", 5_400_000),
            ("0h5s", 5_000),
        ] {
            assert_eq!(parse_duration(text).expect(text).as_millis(), ms, "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_an_example() {
        for text in [
            "",
            "0",
            "0s",
            "0h0m",
            "30",
            "s",
            "5 m",
            "-5s",
            "1.5s",
            "5M",
            "30s5m",
            "5m5m",
            "1d",
            "1s2",
            "é",
            "99999999999999999999s",
            "18446744073709551615h",
            "1m ",
            "+1s",
        ] {
            let error = parse_duration(text).expect_err(text);
            assert!(error.contains("`30s`"), "{text}: {error}");
        }
    }
}
