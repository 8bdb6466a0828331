//! Results of checks whose user has no permission to list Secrets.

use crate::preflight::{Judged, Verdict};

/// How to get the role that lets `preflight` list Secrets.
pub const SECRETS_ROLE: &str = "bind the optional ClusterRole `netsurgeon-mirror-secrets` of deploy/rbac.yaml to this user, in both clusters";

/// Adds a note to a result: Secrets are not checked, because the user has no permission to list them. A pass becomes a warning.
pub fn without_secrets(judged: Judged) -> Judged {
    let seen =
        format!("{}; Secrets are not checked: the user has no permission to list them", judged.observed);
    match judged.verdict {
        Verdict::Pass => Judged::warn(seen, SECRETS_ROLE),
        _ => Judged { observed: seen, remedy: format!("{}; {SECRETS_ROLE}", judged.remedy), ..judged },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_that_are_not_checked_are_reported() {
        let passed = without_secrets(Judged::pass("fine"));
        assert_eq!(passed.verdict, Verdict::Warn);
        assert_eq!(passed.observed, "fine; Secrets are not checked: the user has no permission to list them");
        let failed = without_secrets(Judged::fail("bad", "repair it"));
        assert_eq!((failed.verdict, failed.remedy), (Verdict::Fail, format!("repair it; {SECRETS_ROLE}")));
    }
}
