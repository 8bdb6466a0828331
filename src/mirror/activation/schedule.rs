//! The next scheduled time of a `CronJob`, for the plan and for the order of the hand-overs. Nothing depends on its correctness: the
//! `CronJob` controllers decide what runs.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde_json::Value;
use time::OffsetDateTime;

use crate::inventory::text;

/// How far ahead the next time is searched, in days: every date of a leap year occurs within eight years.
const HORIZON: i64 = 8 * 366;
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A schedule in the syntax of cron. Each field is a set of numbers, as bits.
#[derive(Debug, PartialEq)]
struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether days of the month and of the week are both restricted: a day matches if one of them does.
    is_either: bool,
}

impl Schedule {
    fn parse(schedule: &str) -> Option<Self> {
        let expanded = match schedule.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = expanded.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.try_into().ok()?;
        let is_any = |field: &str| field.starts_with(['*', '?']);
        Some(Self {
            minutes: bits(minutes, 0, 59, &[])?,
            hours: bits(hours, 0, 23, &[])?,
            days: bits(days, 1, 31, &[])?,
            months: bits(months, 1, 12, &MONTHS)?,
            weekdays: bits(weekdays, 0, 6, &DAYS)?,
            is_either: !is_any(days) && !is_any(weekdays),
        })
    }

    fn has_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        let matches = if self.is_either { day || weekday } else { day && weekday };
        has(self.months, date.month()) && matches
    }

    /// Returns the first scheduled time after a moment.
    fn next(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let local = zone.to_datetime(now);
        for ahead in 0..HORIZON {
            let date = local.date().checked_add(ahead.days()).ok()?;
            if !self.has_day(date) {
                continue;
            }
            for minute in 0..1440_i16 {
                let (hour, minute) = (minute.checked_div(60)?, minute.checked_rem(60)?);
                let (hour, minute) = (i8::try_from(hour).ok()?, i8::try_from(minute).ok()?);
                if !has(self.hours, hour) || !has(self.minutes, minute) {
                    continue;
                }
                let at: DateTime = date.at(hour, minute, 0, 0);
                let at = zone.to_timestamp(at).ok()?;
                if at > now {
                    return Some(at);
                }
            }
        }
        None
    }
}

fn has(bits: u64, number: i8) -> bool {
    u32::try_from(number).ok().and_then(|number| bits.checked_shr(number)).is_some_and(|bits| bits & 1 == 1)
}

/// Parses a field: a list of `*`, numbers, names and ranges, each with an optional step.
fn bits(field: &str, least: u32, most: u32, names: &[&str]) -> Option<u64> {
    let number = |word: &str| -> Option<u32> {
        let lower = word.to_ascii_lowercase();
        if let Some(index) = names.iter().position(|name| *name == lower) {
            return u32::try_from(index).ok()?.checked_add(least);
        }
        word.parse().ok().filter(|number| (least..=most).contains(number))
    };
    let mut found: u64 = 0;
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u32>().ok().filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if matches!(range, "*" | "?") => (least, most),
            Some((low, high)) => (number(low)?, number(high)?),
            None if step.is_some() => (number(range)?, most),
            None => (number(range)?, number(range)?),
        };
        let step = usize::try_from(step.unwrap_or(1)).ok()?;
        for number in (from..=to).step_by(step) {
            found |= 1_u64.checked_shl(number)?;
        }
    }
    Some(found)
}

/// Returns the next scheduled time of a `CronJob` after a moment. A `CronJob` without a time zone has the zone of the controller
/// manager, which is usually UTC. Returns `None` if the schedule or the zone is not known here.
pub(super) fn next(cron_job: &Value, now: OffsetDateTime) -> Option<OffsetDateTime> {
    let mut schedule = text(cron_job, "/spec/schedule").trim();
    let mut zone = text(cron_job, "/spec/timeZone");
    for prefix in ["CRON_TZ=", "TZ="] {
        if let Some((named, rest)) = schedule.strip_prefix(prefix).and_then(|rest| rest.split_once(' ')) {
            (zone, schedule) = (named, rest);
        }
    }
    let zone = match zone {
        "" | "UTC" | "Etc/UTC" => TimeZone::UTC,
        named => TimeZone::get(named).ok()?,
    };
    let now = Timestamp::from_second(now.unix_timestamp()).ok()?;
    let next = Schedule::parse(schedule)?.next(now, &zone)?;
    OffsetDateTime::from_unix_timestamp(next.as_second()).ok()
}

/// Returns the seconds until the next scheduled time.
pub(super) fn seconds_to_next(cron_job: &Value, now: OffsetDateTime) -> Option<u64> {
    let next = next(cron_job, now)?.unix_timestamp();
    u64::try_from(next.saturating_sub(now.unix_timestamp())).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::jobs::{formatted, parsed};
    use super::*;

    #[test]
    fn next_time_follows_the_schedule() {
        // 2026-11-29 is a Sunday.
        let now = parsed("2026-11-29T07:05:30Z").unwrap();
        for (schedule, zone, expected) in [
            ("* * * * *", Value::Null, Some("2026-11-29T07:06:00Z")),
            ("*/15 * * * *", Value::Null, Some("2026-11-29T07:15:00Z")),
            ("0 3 * * *", Value::Null, Some("2026-11-30T03:00:00Z")),
            ("30 6-8/2 * * mon-fri", Value::Null, Some("2026-11-30T06:30:00Z")),
            ("0 0 13 * fri", Value::Null, Some("2026-12-04T00:00:00Z")),
            ("0 0 29 2 *", Value::Null, Some("2028-02-29T00:00:00Z")),
            ("@hourly", Value::Null, Some("2026-11-29T08:00:00Z")),
            ("5,10 7 * * *", Value::Null, Some("2026-11-29T07:10:00Z")),
            ("0 9 * * *", json!("Etc/UTC"), Some("2026-11-29T09:00:00Z")),
            ("@every 5m", Value::Null, None),
            ("0 0 31 2 *", Value::Null, None),
            ("0 25 * * *", Value::Null, None),
            ("0 9 * * *", json!("No/Zone"), None),
        ] {
            let object = json!({"spec": {"schedule": schedule, "timeZone": zone}});
            assert_eq!(next(&object, now).map(formatted).as_deref(), expected, "{schedule}");
        }
    }
}
