//! Numbers as texts, as servers read and write them.

/// Reads a whole number. There is one way to write it: no sign but a minus, no spaces, no zeros before it.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        b"0" => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    canonical
        .then(|| std::str::from_utf8(text).ok()?.parse().ok())
        .flatten()
}

/// A number of Lua as an argument of a command, as newer servers write it: with as few digits as it takes.
pub(super) fn shortest(number: f64) -> String {
    if !number.is_finite() {
        return special(number);
    }
    // All of these are exact. Servers leave out the greater half.
    if number.fract() == 0.0 && number.abs() <= 2_f64.powi(62) {
        return truncated(number).to_string();
    }
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap();
    let digits = mantissa.replace('.', "");
    let exponent: i32 = exponent.parse().unwrap();
    let count = i32::try_from(digits.len()).unwrap();
    let minus = if number < 0.0 { "-" } else { "" };
    // Where the last digit stands: after that many zeros, or decimals if negative.
    let last = exponent - (count - 1);
    if last >= 0 && exponent < count + 7 {
        let zeros = "0".repeat(usize::try_from(last).unwrap());
        return format!("{minus}{digits}{zeros}");
    }
    if last < 0 && (last > -7 || exponent.abs() < 4) {
        return format!("{minus}{}", number.abs());
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{minus}{first}{point}{rest}e{sign}{}", exponent.abs())
}

fn special(number: f64) -> String {
    let minus = if number.is_sign_negative() { "-" } else { "" };
    let word = if number.is_nan() { "nan" } else { "inf" };
    format!("{minus}{word}")
}

/// A number of Lua as a whole number: without its decimals, and the least one if it is too big.
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
pub(super) fn truncated(number: f64) -> i64 {
    // Both bounds are exact; the upper one is the first number that does not fit.
    let bound = 2_f64.powi(63);
    if (-bound..bound).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}
