//! Durations as people write them.

use std::time::Duration;

/// Reads `800ms`, `20s`, `2m`, or plain seconds. More than zero, at most one hour.
///
/// # Errors
/// What is wrong with it, and the limit.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match parse_duration_or_zero(text)? {
        Duration::ZERO => Err(format!("'{text}' is out of range: more than 0, at most 1 hour")),
        duration => Ok(duration),
    }
}

/// As [`parse_duration`], where zero means something.
///
/// # Errors
/// What is wrong with it, and the limit.
pub fn parse_duration_or_zero(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        unit => return Err(format!("unknown unit '{unit}': use ms, s or m, as in 800ms or 20s")),
    };
    let seconds = digits.parse::<f64>().map_err(|_| format!("'{text}' is not a duration: write 800ms, 20s or 2m"))?;
    let seconds = seconds * scale;
    if (0.0..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("'{text}' is out of range: at least 0, at most 1 hour"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, want) in [
            ("800ms", Some(Duration::from_millis(800))),
            ("20s", Some(Duration::from_secs(20))),
            ("1.5", Some(Duration::from_millis(1500))),
            ("2m", Some(Duration::from_secs(120))),
            ("0", None),
            ("-1s", None),
            ("3601s", None),
            ("inf", None),
            ("NaNs", None),
            ("5h", None),
            ("", None),
        ] {
            assert_eq!(parse_duration(text).ok(), want, "{text:?}");
        }
        assert_eq!(parse_duration_or_zero("0"), Ok(Duration::ZERO));
        assert!(parse_duration_or_zero("-1s").is_err() && parse_duration_or_zero("3601s").is_err());
    }
}
