//! Data from the status of etcd members that several checks use.

use crate::store::etcd::{Member, MemberStatus};

/// The default quota of etcd (`DefaultQuotaBytes`, server/storage/quota.go, v3.6.16).
pub const DEFAULT_QUOTA: u64 = 2 * 1024 * 1024 * 1024;
/// A check fails if at least this share of the quota is used, in percent.
pub const FULL: u64 = 80;
/// A mebibyte in bytes.
pub const MEBIBYTE: u64 = 1024 * 1024;

/// Returns the name of a member, or its id in hexadecimal if it has no name.
pub fn name(member: &Member) -> String {
    if member.name.is_empty() { format!("{:x}", member.id) } else { member.name.clone() }
}

/// Returns the status of each member that answers.
pub fn statuses(members: &[Member]) -> impl Iterator<Item = &MemberStatus> {
    members.iter().filter_map(|member| member.status.as_ref().ok())
}

#[cfg(test)]
pub mod testing {
    //! Members for tests.

    use super::*;

    pub fn member(id: u64) -> Member {
        let status = MemberStatus {
            version: "3.6.16".into(),
            size: 50 * MEBIBYTE,
            leader: 1,
            ..MemberStatus::default()
        };
        Member {
            id,
            name: format!("etcd-{id}"),
            is_learner: false,
            addresses: Vec::new(),
            status: Ok(status),
        }
    }

    pub fn down(id: u64) -> Member {
        Member { status: Err("it does not answer at https://192.0.2.3:2379".into()), ..member(id) }
    }
}
