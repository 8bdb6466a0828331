//! Checks whether the user has the permissions that an operation needs. If the user has only the read permissions, the result is
//! a warning: this user can run `preflight`, but cannot make the change. In all other cases with missing permissions, the result
//! is a failure.

use super::{Judged, Read};
use crate::inventory::{ClusterReader, Permission, Rights};

/// The permissions that a check verifies.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// Permissions to read.
    pub reads: &'a Rights,
    /// Permissions that the change needs in addition.
    pub changes: &'a Rights,
    pub need: Need,
}

/// What a user with only the read permissions can do.
pub const READER: &str = "can read, but cannot change anything";

/// Texts about an operation that needs permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Name of the operation, for example `a move`.
    pub operation: &'static str,
    /// What a user with only the read permissions can do, for example `can read, but cannot change anything`.
    pub reader: &'static str,
    /// Role that grants the read permissions.
    pub read_role: &'static str,
    /// How to get the other permissions.
    pub remedy: &'static str,
}

/// Checks whether the user has the permissions in one namespace, or in all namespaces.
pub async fn check(reader: &ClusterReader, asked: &Asked<'_>, namespace: Option<&str>) -> Read<Judged> {
    let (reads, changes) = tokio::try_join!(
        reader.permissions(asked.reads, namespace),
        reader.permissions(asked.changes, namespace)
    )?;
    Ok(judge(&reads, &changes, &asked.need, namespace))
}

/// Checks the permissions to read and to make the change. `namespace`: the namespace in which the permissions were checked;
/// `None` for all namespaces.
fn judge(reads: &[Permission], changes: &[Permission], need: &Need, namespace: Option<&str>) -> Judged {
    let all = || reads.iter().chain(changes);
    let missing: Vec<&str> = all().filter(|one| !one.is_granted).map(|one| one.name.as_str()).collect();
    if missing.is_empty() {
        return Judged::pass(format!(
            "this user has all {} permissions for {}",
            all().count(),
            need.operation
        ));
    }
    let within = namespace.map(|namespace| format!(" in `{namespace}`")).unwrap_or_default();
    let seen = format!("missing permissions{within}: {}", missing.join(", "));
    if reads.iter().any(|one| !one.is_granted) {
        let bind = format!("bind the ClusterRole `{}` of deploy/rbac.yaml to this user", need.read_role);
        let is_change_missing = changes.iter().any(|one| !one.is_granted);
        let remedy = if is_change_missing { format!("{bind}; {}", need.remedy) } else { bind };
        return Judged::fail(seen, remedy);
    }
    if changes.iter().all(|one| !one.is_granted) {
        return Judged::warn(format!("this user {}; {seen}", need.reader), need.remedy);
    }
    Judged::fail(seen, need.remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    const NEED: Need = Need {
        operation: "a move",
        reader: READER,
        read_role: "netsurgeon-preflight",
        remedy: "bind the other role",
    };

    fn granted(all: &[(&str, bool)]) -> Vec<Permission> {
        let one = |(permission, is_granted): &(&str, bool)| Permission {
            name: (*permission).to_string(),
            is_granted: *is_granted,
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn user_with_only_read_permissions_is_a_warning() {
        let reads = granted(&[("list nodes", true)]);
        let of = |changes: &[(&str, bool)]| judge(&reads, &granted(changes), &NEED, None);
        let all = of(&[("create services", true)]);
        assert_eq!(
            (all.verdict, all.observed.as_str()),
            (Verdict::Pass, "this user has all 2 permissions for a move")
        );
        let reader = of(&[("create services", false), ("delete services", false)]);
        assert_eq!(reader.verdict, Verdict::Warn);
        let seen = "this user can read, but cannot change anything; missing permissions: create services, delete services";
        assert_eq!((reader.observed.as_str(), reader.remedy.as_str()), (seen, "bind the other role"));
        let half = of(&[("create services", true), ("delete services", false)]);
        assert_eq!(
            (half.verdict, half.observed.as_str()),
            (Verdict::Fail, "missing permissions: delete services")
        );
    }

    #[test]
    fn missing_read_permission_names_its_role() {
        let reads = granted(&[("list nodes", false)]);
        let both = judge(&reads, &granted(&[("create services", false)]), &NEED, Some("shop"));
        assert_eq!(both.verdict, Verdict::Fail);
        assert_eq!(both.observed, "missing permissions in `shop`: list nodes, create services");
        let bind = "bind the ClusterRole `netsurgeon-preflight` of deploy/rbac.yaml to this user";
        assert_eq!(both.remedy, format!("{bind}; bind the other role"));
        assert_eq!(judge(&reads, &[], &NEED, None).remedy, bind);
    }
}
