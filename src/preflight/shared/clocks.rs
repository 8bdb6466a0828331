//! `clocks`: whether the clocks of the API servers agree with each other, and with the clock of this host.

use crate::inventory::{ClusterReader, ServerState};
use crate::preflight::{Check, Judged, Source};

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<ClusterReader>>(why: &'static str) -> Check<C> {
    Check {
        name: "clocks",
        why,
        needs: &[Source::Api],
        judge: |input| Box::pin(async move { Ok(judge(input.as_ref().server_states().await?)) }),
    }
}

/// Largest accepted clock difference in milliseconds. The repair loop of the API server deletes orphaned addresses that are 5 s
/// old (`repairip.go`, v1.36.3). In tests, a difference of 10 s was too large.
const MOST_SKEW: i64 = 1000;

/// Checks the clocks. API servers compare dates that other API servers have written, so their clocks must agree. netsurgeon uses
/// their clock, so a wrong clock of this host is only a warning: certificates and the times in logs depend on it.
fn judge(states: &[ServerState]) -> Judged {
    let known = states.iter().filter_map(|one| one.skew);
    let differ = known.clone().max().zip(known.clone().min());
    let all = |only: &dyn Fn(i64) -> bool| {
        let words = |one: &ServerState| {
            one.skew.filter(|skew| only(*skew)).map(|skew| format!("{}: {skew} ms", one.at))
        };
        states.iter().filter_map(words).collect::<Vec<_>>().join(", ")
    };
    if differ.is_some_and(|(most, least)| most.saturating_sub(least) > MOST_SKEW) {
        return Judged::fail(
            format!(
                "the clocks of API servers differ from each other (compared with this host: {})",
                all(&|_| true)
            ),
            "synchronise the clocks of all API servers with NTP: their repair loops compare the creation times of addresses with their own clocks",
        );
    }
    if states.is_empty() {
        return Judged::unknown("no API server was found", "start an API server");
    }
    let silent: Vec<&str> =
        states.iter().filter(|one| one.skew.is_none()).map(|one| one.at.as_str()).collect();
    if !silent.is_empty() {
        return Judged::unknown(
            format!("API servers that do not report their time: {}", silent.join(", ")),
            "check `kubectl get --raw /version` on each of them: its `Date` header is the time of the API server",
        );
    }
    let is_off = |skew: i64| skew.abs() > MOST_SKEW;
    if known.clone().any(is_off) {
        return Judged::warn(
            format!("the clock of this host differs from the clocks of the API servers: {}", all(&is_off)),
            "synchronise the clock of this host with NTP: netsurgeon uses the cluster's clock for all dates, but certificates, TSIG \
             signatures and logs depend on the clock of this host",
        );
    }
    let most = known.map(i64::abs).max().unwrap_or_default();
    Judged::pass(format!("the clock of each API server is within {most} ms of this host's clock (± 1 s)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn clocks_of_api_servers_must_agree_within_a_second() {
        let state = |skew| ServerState { at: String::new(), version: Ok("v1.36.3".into()), skew };
        let verdict =
            |skews: &[Option<i64>]| judge(&skews.iter().map(|skew| state(*skew)).collect::<Vec<_>>()).verdict;
        assert_eq!(verdict(&[Some(900)]), Verdict::Pass);
        assert_eq!(verdict(&[Some(0), Some(-1001)]), Verdict::Fail);
        assert_eq!(verdict(&[None]), Verdict::Unknown);
        assert_eq!(verdict(&[]), Verdict::Unknown);
        assert_eq!(
            verdict(&[None, Some(0), Some(-1001)]),
            Verdict::Fail,
            "a silent server hides no wrong clock"
        );
        let days = -100 * 24 * 3600 * 1000;
        assert_eq!(verdict(&[Some(days), Some(days)]), Verdict::Warn, "only the clock of this host is wrong");
    }
}
