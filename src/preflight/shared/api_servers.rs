//! `api-servers`: whether each API server is ready.

use crate::inventory::{ClusterReader, ServerState};
use crate::preflight::{Check, Judged, Source};
use crate::words::counted;

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<ClusterReader>>(why: &'static str) -> Check<C> {
    Check {
        name: "api-servers",
        why,
        needs: &[Source::Api],
        judge: |input| Box::pin(async move { Ok(judge(input.as_ref().server_states().await?)) }),
    }
}

/// Checks whether each API server is ready.
fn judge(states: &[ServerState]) -> Judged {
    let ill: Vec<String> = states
        .iter()
        .filter_map(|one| Some(format!("{}: {}", one.at, one.version.as_ref().err()?)))
        .collect();
    match ill.first() {
        None if states.is_empty() => Judged::fail("no API server was found", "start an API server"),
        None => {
            let places: Vec<&str> = states.iter().map(|one| one.at.as_str()).collect();
            Judged::pass(format!(
                "{} ready: {}",
                counted(states.len(), "API server", "API servers"),
                places.join(", ")
            ))
        }
        Some(_) => Judged::fail(
            format!("{} of {} API servers not ready: {}", ill.len(), states.len(), ill.join("; ")),
            "repair the API server, or stop it permanently: a stopped API server disappears from the endpoints of `default/kubernetes` within 15 s",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn every_server_must_be_ready() {
        let ready =
            ServerState { at: "192.0.2.10:6443".into(), version: Ok("v1.36.3".into()), skew: Some(0) };
        let down = ServerState { version: Err("etcd failed".into()), ..ready.clone() };
        assert_eq!(judge(std::slice::from_ref(&ready)).verdict, Verdict::Pass);
        assert_eq!(judge(&[ready, down]).verdict, Verdict::Fail);
        assert_eq!(judge(&[]).verdict, Verdict::Fail);
    }
}
