//! `authorization`: which users other than administrators are allowed to undo a change or to read Secrets.

use std::collections::BTreeSet;

use futures_util::future::join_all;

use crate::inventory::{ClusterReader, unread};
use crate::preflight::{Check, Judged, Read, Source};

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<ClusterReader>>(why: &'static str) -> Check<C> {
    Check { name: "authorization", why, needs: &[Source::Api], judge: |input| Box::pin(read(input.as_ref())) }
}

async fn read(reading: &ClusterReader) -> Read<Judged> {
    let cluster = reading.cluster()?;
    let asked = Requester::ALL.into_iter().flat_map(|who| POWERS.iter().map(move |power| (who, power)));
    let answers = asked.map(async |(who, (verb, resource))| {
        let may = cluster.may_somebody(who.user(), verb, *resource).await;
        may.map(|may| may.then(|| (who, format!("{verb} {}", resource.1))))
    });
    let mut may = Vec::new();
    for answer in join_all(answers).await {
        may.extend(answer.map_err(unread)?);
    }
    Ok(judge(&may))
}

/// A user for whom the permissions are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Requester {
    /// An unknown user without groups. If a request of this user succeeds, the same request succeeds for every user.
    Stranger,
    /// A client without credentials (`user.Anonymous`, `k8s.io/apiserver/pkg/authentication/user/user.go`, v1.36.3).
    Anonymous,
    /// Every ServiceAccount, and so every Pod (`serviceaccount.AllServiceAccountsGroup`).
    EveryPod,
    /// Every authenticated user.
    Authenticated,
}

impl Requester {
    /// All users. The most serious case is first.
    const ALL: [Self; 4] = [Self::Stranger, Self::Anonymous, Self::EveryPod, Self::Authenticated];

    /// Returns the user's name and groups for a SubjectAccessReview.
    fn user(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Stranger => ("netsurgeon-preflight-stranger", &[]),
            Self::Anonymous => ("system:anonymous", &["system:unauthenticated"]),
            Self::EveryPod => (
                "system:serviceaccount:netsurgeon-preflight:any",
                &["system:serviceaccounts", "system:authenticated"],
            ),
            Self::Authenticated => ("netsurgeon-preflight-stranger", &["system:authenticated"]),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Stranger => "an unknown user",
            Self::Anonymous => "a client without credentials (`system:anonymous`)",
            Self::EveryPod => "every Pod (`system:serviceaccounts`)",
            Self::Authenticated => "every user (`system:authenticated`)",
        }
    }
}

/// Permissions that are checked: verb, API group and resource. Each of them is enough to undo a move, or to read the content of a
/// snapshot.
const POWERS: [(&str, (&str, &str)); 5] = [
    ("update", ("", "services")),
    ("patch", ("", "services")),
    ("create", ("", "pods")),
    ("get", ("", "secrets")),
    ("list", ("", "secrets")),
];

/// Checks which permissions the users have. `may`: each user with one permission, for example `update services`.
fn judge(may: &[(Requester, String)]) -> Judged {
    let Some(worst) = may.iter().map(|(who, _)| *who).min() else {
        return Judged::pass(
            "no unknown user, anonymous client or ordinary Pod is allowed to change Services, create Pods or read Secrets",
        );
    };
    let what: BTreeSet<&str> =
        may.iter().filter(|(who, _)| *who == worst).map(|(_, what)| what.as_str()).collect();
    let what = what.into_iter().collect::<Vec<_>>().join(", ");
    let seen = format!("{} is allowed to {what}", worst.words());
    let bindings = "`kubectl get clusterrolebindings -o wide` shows the bindings";
    match worst {
        Requester::Stranger => Judged::fail(
            seen,
            "set `--authorization-mode=Node,RBAC` on every API server, instead of `AlwaysAllow`",
        ),
        Requester::Anonymous => {
            Judged::fail(seen, format!("remove the binding that grants this permission; {bindings}"))
        }
        Requester::EveryPod | Requester::Authenticated => {
            Judged::warn(seen, format!("bind the role only to users that need this permission; {bindings}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn most_serious_permission_is_reported() {
        let judged = |may: &[Requester]| {
            judge(&may.iter().map(|who| (*who, "get secrets".into())).collect::<Vec<_>>())
        };
        assert_eq!(judged(&[]).verdict, Verdict::Pass);
        assert_eq!(judged(&[Requester::Authenticated]).verdict, Verdict::Warn);
        let all = judged(&Requester::ALL);
        assert!(all.verdict == Verdict::Fail && all.remedy.contains("AlwaysAllow"), "{all:?}");
        let anonymous = judged(&[Requester::Authenticated, Requester::Anonymous]);
        assert_eq!(anonymous.verdict, Verdict::Fail);
        assert_eq!(
            anonymous.observed,
            "a client without credentials (`system:anonymous`) is allowed to get secrets"
        );
    }
}
