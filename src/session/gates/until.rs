//! The format of the time limit after which no batch starts.

use std::time::Duration;

use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{OffsetDateTime, Time, UtcOffset};

/// Parses a time in one of three formats: RFC 3339, `HH:MM` for the next occurrence of this time of day in UTC, or `+` and a
/// duration from now, for example `+1h30m`. Returns a UTC time, truncated to whole seconds.
pub fn parse(text: &str, now: OffsetDateTime) -> Result<OffsetDateTime, String> {
    let moment = if let Some(duration) = text.strip_prefix('+') {
        let duration = duration_of(duration).ok_or_else(|| wrong("`+90m`, `+1h30m` or `+45s`"))?;
        time::Duration::try_from(duration).ok().and_then(|duration| now.checked_add(duration))
    } else if let Ok(clock) = Time::parse(text, format_description!("[hour]:[minute]")) {
        let today = now.replace_time(clock);
        if today > now { Some(today) } else { today.checked_add(time::Duration::DAY) }
    } else {
        let moment = OffsetDateTime::parse(text, &Rfc3339)
            .map_err(|_| wrong("`2026-11-21T23:30:00Z`, `23:30` (UTC) or `+90m`"))?;
        moment.checked_to_offset(UtcOffset::UTC)
    };
    moment
        .map(OffsetDateTime::truncate_to_second)
        .ok_or_else(|| "this time is too far in the future".to_string())
}

fn wrong(examples: &str) -> String {
    format!("give a time such as {examples}")
}

/// Parses a duration such as `1h30m`. Each unit occurs at most once, and larger units come first.
pub fn duration_of(text: &str) -> Option<Duration> {
    let (mut rest, mut seconds) = (text, 0_u64);
    for (unit, worth) in [('h', 3600_u64), ('m', 60), ('s', 1)] {
        if let Some((number, after)) = rest.split_once(unit) {
            if !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(worth)?)?;
            rest = after;
        }
    }
    (rest.is_empty() && seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Formats a UTC time, truncated to whole seconds.
pub fn words(moment: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    moment.to_offset(UtcOffset::UTC).format(format).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, String> {
        // 2027-01-15T08:00:00Z
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        parse(text, now).map(words)
    }

    #[test]
    fn every_notation_is_parsed() {
        for (text, moment) in [
            ("2027-01-15T10:30:00+01:00", "2027-01-15T09:30:00Z"),
            ("2027-01-15T10:30:00.75Z", "2027-01-15T10:30:00Z"),
            ("08:01", "2027-01-15T08:01:00Z"),
            ("08:00", "2027-01-16T08:00:00Z"),
            ("07:59", "2027-01-16T07:59:00Z"),
            ("+90m", "2027-01-15T09:30:00Z"),
            ("+1h30m5s", "2027-01-15T09:30:05Z"),
            ("+45s", "2027-01-15T08:00:45Z"),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(moment), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_refused() {
        for text in ["", "+", "+0s", "+90", "+1m1h", "+-1h", "+1d", "24:00", "8 o'clock", "2027-01-15"] {
            assert!(parsed(text).unwrap_err().contains("such as"), "{text}");
        }
        let far = format!("+{}h", u64::MAX);
        assert!(parsed(&far).is_err());
        for text in ["+999999999999999h", "9999-12-31T23:59:59-01:00"] {
            assert!(parsed(text).unwrap_err().contains("too far"), "{text}");
        }
    }
}
