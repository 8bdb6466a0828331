//! Checks the clocks before a run. Repair loops of API servers compare the creation timestamps of IPAddresses with their own clocks.
//! All dates come from the clock of the API server that answers netsurgeon, so an API server with another clock could delete
//! addresses that the operation keeps.

use std::time::Duration;

use time::OffsetDateTime;

use super::{Direction, RenumberSession};
use crate::kube_api::Cluster;
use crate::renumber::Renumbering;
use crate::session::Failure;
use crate::survey::Era;
use crate::words::{counted, in_words};

/// Largest accepted difference between the clocks of two API servers. The creation timestamps are 60 days in the future, and are
/// renewed after 30 days. `preflight` reports smaller differences.
const MOST_AMONG: Duration = Duration::from_hours(24);
/// Smallest difference of this host's clock that is reported.
const REPORTED: Duration = Duration::from_mins(1);
/// Seconds in a day.
const DAY: u64 = 24 * 60 * 60;

impl RenumberSession {
    /// Refuses to run forward while the clock of an API server differs from the clocks of other API servers by more than a day. A
    /// rollback only warns. Reports a wrong clock of this host, which no date depends on.
    pub(super) async fn check_clocks(&self, work: &Renumbering, way: Direction) -> Result<(), Failure> {
        let Some(cluster) = self.cluster().filter(|_| work.era != Era::Bitmap) else { return Ok(()) };
        let Some(now) = cluster.clock().now() else {
            return Err(Failure::refused(format!(
                "the API at {} does not report its time (header `Date`), and the clock of this host can be wrong",
                cluster.server()
            ))
            .hint("connect to an API server without a proxy that removes this header"));
        };
        if let Some(words) = difference(OffsetDateTime::now_utc(), now, REPORTED) {
            self.ui.warn(&format!(
                "the clock of this host is {words} the clock of the cluster; dates and waits use the clock of the cluster"
            ));
        }
        let Some(text) = other_clock(cluster).await else { return Ok(()) };
        if !way.is_forward() {
            self.ui.warn(&text);
            return Ok(());
        }
        Err(Failure::refused(text)
            .hint("synchronise the clocks of all API servers with NTP, then run this command again"))
    }
}

/// Returns a message that names an API server whose clock differs too much. Ignores API servers that do not answer, because the
/// steps wait for them.
async fn other_clock(cluster: &Cluster) -> Option<String> {
    for server in cluster.api_servers().await.ok()? {
        let Ok(client) = cluster.dial(server).await else { continue };
        let (Some(its), Some(now)) = (client.time().await, cluster.clock().now()) else { continue };
        if let Some(words) = difference(its, now, MOST_AMONG) {
            return Some(format!(
                "the clock of API server {server} is {words} the clock of {}; its repair loop would delete IPAddresses that the \
                 operation keeps",
                cluster.server()
            ));
        }
    }
    None
}

/// Returns how far a clock is from the time `now`, as text: `2 h ahead of` or `100 days behind`; `None` if it is closer than `least`.
fn difference(clock: OffsetDateTime, now: OffsetDateTime, least: Duration) -> Option<String> {
    let seconds = clock.unix_timestamp().saturating_sub(now.unix_timestamp());
    let (off, is_behind) = (Duration::from_secs(seconds.unsigned_abs()), seconds < 0);
    // To the nearest day: the time in the header `Date` has no fraction of a second, so 61 days can look a second shorter.
    let days = usize::try_from(off.as_secs().saturating_add(DAY / 2) / DAY).unwrap_or(usize::MAX);
    let words = if days < 2 { in_words(off) } else { counted(days, "day", "days") };
    (off >= least).then(|| if is_behind { format!("{words} behind") } else { format!("{words} ahead of") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_has_a_direction() {
        let at = |seconds| OffsetDateTime::from_unix_timestamp(seconds).unwrap();
        let words = |clock, now| difference(at(clock), at(now), REPORTED);
        assert_eq!(words(1000, 1059), None);
        assert_eq!(words(1000, 1000 + 3600).as_deref(), Some("1 h behind"));
        assert_eq!(words(1000 + 100 * 86_400, 1000).as_deref(), Some("100 days ahead of"));
        assert_eq!(
            words(1000, 999 + 61 * 86_400).as_deref(),
            Some("61 days behind"),
            "a second less than 61 days"
        );
    }
}
