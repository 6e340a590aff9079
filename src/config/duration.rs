//! Durations as people write them: `10s`, `250ms`, `1m30s`, `2h`.

use std::time::Duration;

/// The units, the longest first, with their milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("d", 24 * 60 * 60 * 1_000),
    ("h", 60 * 60 * 1_000),
    ("m", 60 * 1_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Reads whole numbers with units, the longer unit first, each unit at most once.
///
/// # Errors
///
/// What is wrong with the text, to be put behind the name of a field. The text itself is not repeated.
pub(super) fn parse(text: &str) -> Result<Duration, &'static str> {
    if text.is_empty() {
        return Err("is empty; say 10s or 250ms");
    }
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut millis = 0_u64;
    while !rest.is_empty() {
        let (digits, after) = split(rest, |character| !character.is_ascii_digit());
        if digits.is_empty() {
            return Err(NOT_A_DURATION);
        }
        let (unit, after) = split(after, |character| !character.is_ascii_alphabetic());
        if unit.is_empty() && after.is_empty() {
            return Err("has no unit at its end; say 10s or 10ms");
        }
        if !UNITS.iter().any(|(name, _)| *name == unit) {
            return Err(NOT_A_DURATION);
        }
        // Those before it in the table are passed over, and cannot come any more.
        let Some((_, factor)) = units.find(|(name, _)| *name == unit) else {
            return Err("has a unit twice, or a shorter one before a longer one; say 1m30s");
        };
        let part = digits.parse::<u64>().ok();
        let part = part.and_then(|count| count.checked_mul(*factor));
        millis = part
            .and_then(|part| millis.checked_add(part))
            .ok_or("is longer than any duration can be")?;
        rest = after;
    }
    Ok(Duration::from_millis(millis))
}

const NOT_A_DURATION: &str = "is no duration: whole numbers with the units d, h, m, s and ms are, without spaces or fractions, as in 10s, 250ms or 1m30s";

/// Splits before the first character that `ends` what comes before.
fn split(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(ends).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("0s", 0),
            ("10s", 10_000),
            ("250ms", 250),
            ("1m30s", 90_000),
            ("90s", 90_000),
            ("2h", 7_200_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("007s", 7_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "is empty"),
            ("10", "no unit"),
            ("1m30", "no unit"),
            ("s", "is no duration"),
            ("-1s", "is no duration"),
            ("+1s", "is no duration"),
            ("1.5s", "is no duration"),
            ("10 s", "is no duration"),
            (" 10s", "is no duration"),
            ("10s ", "is no duration"),
            ("10S", "is no duration"),
            ("10sec", "is no duration"),
            ("10µs", "is no duration"),
            ("١s", "is no duration"),
            ("30s1m", "a shorter one before"),
            ("1s1s", "a unit twice"),
            ("99999999999999999999ms", "longer than any"),
            ("18446744073709551615s", "longer than any"),
            ("18446744073709551s999ms", "longer than any"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    /// Writes a duration with those units of which there are any.
    fn written(mut millis: u64) -> String {
        let mut text = String::new();
        for (unit, factor) in UNITS {
            if millis >= factor {
                text.push_str(&format!("{}{unit}", millis / factor));
                millis %= factor;
            }
        }
        if text.is_empty() {
            text.push_str("0ms");
        }
        text
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(millis: u64) {
            prop_assert_eq!(parse(&written(millis)), Ok(Duration::from_millis(millis)));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = parse(&text);
        }

        /// Texts that come near to durations: what is read at all says the same as its shortest form.
        #[test]
        fn near_misses_are_read_right_or_not_at_all(text in "([0-9]{0,21}[dhms]{0,2}){0,4}") {
            if let Ok(duration) = parse(&text) {
                let millis = u64::try_from(duration.as_millis()).unwrap();
                prop_assert_eq!(parse(&written(millis)), Ok(duration));
                prop_assert!(text.ends_with(['d', 'h', 'm', 's']));
            }
        }
    }
}
