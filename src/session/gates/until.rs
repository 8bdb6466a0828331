//! The time limit after which no batch starts, as operators write it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{OffsetDateTime, Time};

/// The time limit as the operator gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Until {
    /// A moment.
    At(OffsetDateTime),
    /// The next occurrence of this time of day, in UTC.
    Clock(Time),
    /// A duration from now.
    After(Duration),
}

/// Parses RFC 3339, `HH:MM`, or `+` and a duration of hours, minutes and seconds as in `+1h30m`.
pub fn parse(text: &str) -> Result<Until, String> {
    if let Some(duration) = text.strip_prefix('+') {
        return duration_of(duration).map(Until::After).ok_or_else(|| wrong("`+90m`, `+1h30m` or `+45s`"));
    }
    if let Ok(clock) = Time::parse(text, format_description!("[hour]:[minute]")) {
        return Ok(Until::Clock(clock));
    }
    OffsetDateTime::parse(text, &Rfc3339)
        .map(Until::At)
        .map_err(|_| wrong("`2026-11-21T23:30:00Z`, `23:30` (UTC) or `+90m`"))
}

fn wrong(examples: &str) -> String {
    format!("give a time as in {examples}")
}

/// Parses a duration such as `1h30m`, each unit at most once and in descending order.
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

/// Formats a moment in UTC, to the second.
pub fn words(moment: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    moment.to_offset(time::UtcOffset::UTC).format(format).unwrap_or_default()
}

/// Formats the time limit as [`parse`] reads it.
impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(moment) => f.write_str(&words(*moment)),
            Self::Clock(clock) => write!(f, "{:02}:{:02}", clock.hour(), clock.minute()),
            Self::After(duration) => write!(f, "+{}s", duration.as_secs()),
        }
    }
}

impl TryFrom<String> for Until {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse(&text)
    }
}

impl From<Until> for String {
    fn from(until: Until) -> Self {
        until.to_string()
    }
}

impl Until {
    /// Returns the time limit as a moment. Fails if the moment has passed.
    pub fn resolve(self, now: OffsetDateTime) -> Result<OffsetDateTime, String> {
        let too_far = || "`--until` is too far away".to_string();
        let moment = match self {
            Self::At(moment) => moment,
            Self::Clock(clock) => {
                let today = now.replace_time(clock);
                if today > now {
                    today
                } else {
                    today.checked_add(time::Duration::DAY).ok_or_else(too_far)?
                }
            }
            Self::After(duration) => {
                let duration = time::Duration::try_from(duration).map_err(|_| too_far())?;
                now.checked_add(duration).ok_or_else(too_far)?
            }
        };
        if moment <= now {
            return Err(format!("`--until {}` has passed", words(moment)));
        }
        Ok(moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> Result<String, String> {
        // 2027-01-15T08:00:00Z
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        parse(text)?.resolve(now).map(words)
    }

    #[test]
    fn every_notation_is_resolved() {
        for (text, moment) in [
            ("2027-01-15T10:30:00+01:00", "2027-01-15T09:30:00Z"),
            ("08:01", "2027-01-15T08:01:00Z"),
            ("08:00", "2027-01-16T08:00:00Z"),
            ("07:59", "2027-01-16T07:59:00Z"),
            ("+90m", "2027-01-15T09:30:00Z"),
            ("+1h30m5s", "2027-01-15T09:30:05Z"),
            ("+45s", "2027-01-15T08:00:45Z"),
        ] {
            assert_eq!(resolved(text).as_deref(), Ok(moment), "{text}");
        }
    }

    #[test]
    fn until_round_trips_through_text() {
        for text in ["2027-01-15T09:30:00Z", "08:01", "+5405s"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn past_or_invalid_times_are_refused() {
        assert!(resolved("2027-01-15T08:00:00Z").unwrap_err().contains("has passed"));
        for text in ["", "+", "+0s", "+90", "+1m1h", "+-1h", "+1d", "24:00", "8 o'clock", "2027-01-15"] {
            assert!(parse(text).unwrap_err().contains("as in"), "{text}");
        }
        let far = format!("+{}h", u64::MAX);
        assert!(parse(&far).is_err());
        assert!(resolved("+999999999999999h").unwrap_err().contains("too far"));
    }
}
