//! `clocks`: whether the clock of each API server agrees with the clock of this host.

use crate::preflight::reading::{Reading, ServerState};
use crate::preflight::{Check, Judged};

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<Reading>>(why: &'static str) -> Check<C> {
    Check {
        name: "clocks",
        why,
        judge: |input| Box::pin(async move { Ok(judge(input.as_ref().server_states().await?)) }),
    }
}

/// Largest accepted clock difference in milliseconds. The repair loop of the API server deletes orphaned addresses that are 5 s
/// old (`repairip.go`, v1.36.3). In tests, a difference of 10 s was too large.
const MOST_SKEW: i64 = 1000;

/// Checks the clocks: the difference from this host's clock must be at most a second.
fn judge(states: &[ServerState]) -> Judged {
    let off = |one: &ServerState| {
        one.skew.filter(|skew| skew.abs() > MOST_SKEW).map(|skew| format!("{}: {} ms", one.at, skew))
    };
    let wrong: Vec<String> = states.iter().filter_map(off).collect();
    if !wrong.is_empty() {
        return Judged::fail(
            format!("these clocks differ from this host's clock: {}", wrong.join(", ")),
            "synchronise the clocks of all API servers and of this host with NTP: netsurgeon sets the creation time of addresses from this host's clock",
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
    let most = states.iter().filter_map(|one| one.skew.map(i64::abs)).max().unwrap_or_default();
    Judged::pass(format!("the clock of each API server is within {most} ms of this host's clock (± 1 s)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn clocks_must_be_within_a_second() {
        let state = |skew| ServerState { at: String::new(), version: Ok("v1.36.3".into()), skew };
        assert_eq!(judge(&[state(Some(900))]).verdict, Verdict::Pass);
        assert_eq!(judge(&[state(Some(0)), state(Some(-1001))]).verdict, Verdict::Fail);
        assert_eq!(judge(&[state(None)]).verdict, Verdict::Unknown);
        assert_eq!(judge(&[]).verdict, Verdict::Unknown);
        let both = judge(&[state(None), state(Some(-1001))]);
        assert_eq!(both.verdict, Verdict::Fail, "a silent server hides no wrong clock");
    }
}
