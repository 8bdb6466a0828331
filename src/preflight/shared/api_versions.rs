//! `api-versions`: whether all API servers have the same minor version.

use crate::inventory::{ClusterReader, ServerState};
use crate::preflight::{Check, Judged, Source, one_minor};

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<ClusterReader>>(why: &'static str) -> Check<C> {
    Check {
        name: "api-versions",
        why,
        needs: &[Source::Api],
        judge: |input| Box::pin(async move { Ok(judge(input.as_ref().server_states().await?)) }),
    }
}

/// Checks whether all API servers have the same minor version.
fn judge(states: &[ServerState]) -> Judged {
    let versions = states.iter().filter_map(|one| one.version.as_deref().ok());
    one_minor("API server", versions, "finish the upgrade of the control plane first")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn minor_versions_must_be_equal() {
        let state =
            |version: &str| ServerState { at: String::new(), version: Ok(version.into()), skew: Some(0) };
        assert_eq!(judge(&[state("v1.36.3"), state("v1.36.1")]).verdict, Verdict::Pass);
        assert_eq!(judge(&[state("v1.36.3"), state("v1.35.9")]).verdict, Verdict::Fail);
    }
}
