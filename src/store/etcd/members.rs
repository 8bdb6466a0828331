//! Reads the state of all members of an etcd cluster, not only of the given endpoints.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType, Client, StatusResponse};
use futures_util::future::join_all;
use http::Uri;

use super::EtcdStore;
use super::connection::{Connection, Request};
use crate::store::{Access, StoreError};

/// Timeout for the status of one member, much longer than a healthy member needs.
const PATIENCE: Duration = Duration::from_secs(5);

/// A member of an etcd cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Id of the member.
    pub id: u64,
    /// Name of the member; empty if the member has never started.
    pub name: String,
    /// Whether the member is a learner, which has no vote.
    pub is_learner: bool,
    /// IP addresses in the client URLs and peer URLs of the member. Host names are omitted.
    pub addresses: Vec<IpAddr>,
    /// Status of the member, or the reason why it is unknown.
    pub status: Result<MemberStatus, String>,
}

/// The status of a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberStatus {
    /// Version of etcd, for example `3.6.16`.
    pub version: String,
    /// Size of the database, in bytes.
    pub size: u64,
    /// Quota of the database, in bytes; `None` if the member does not report it (etcd before 3.6).
    pub quota: Option<u64>,
    /// Id of the leader that this member reports; 0 if there is no leader.
    pub leader: u64,
    /// Raft term, which each election increments.
    pub term: u64,
    /// Raft index of the member.
    pub index: u64,
    /// Errors that the member reports.
    pub errors: Vec<String>,
}

/// An alarm of an etcd cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// A database has reached its quota, so etcd refuses all writes.
    NoSpace,
    /// The data of the members differs.
    Corrupt,
}

impl EtcdStore {
    /// Lists the members with their status.
    pub async fn members(&self) -> Result<Vec<Member>, StoreError> {
        let send = |client: Client| async move { client.cluster_client().member_list().await };
        let answer = self.connection.request(Request::Read, send).await;
        let answer = answer.map_err(|failure| {
            self.connection.read_error(failure).denied(|| Access::Administer("list the members"))
        })?;
        let status = |client: Client| async move { client.maintenance_client().status().await };
        let own = self.connection.every_endpoint(PATIENCE, status).await;
        // Some members are reachable only at the given endpoints, not at their advertised URLs.
        let known: HashMap<u64, MemberStatus> = own
            .into_iter()
            .flatten()
            .filter_map(|answer| Some((answer.header()?.member_id(), status_of(&answer))))
            .collect();
        let asked = answer.members().iter().map(async |member| Member {
            id: member.id(),
            name: member.name().to_string(),
            is_learner: member.is_learner(),
            addresses: addresses(member.client_urls().iter().chain(member.peer_urls())),
            status: match known.get(&member.id()) {
                Some(status) => Ok(status.clone()),
                None => ask(&self.connection, member.client_urls()).await,
            },
        });
        Ok(join_all(asked).await)
    }

    /// Lists the alarms, each with the id of its member.
    pub async fn alarms(&self) -> Result<Vec<(u64, Alarm)>, StoreError> {
        let send = |client: Client| async move {
            client.maintenance_client().alarm(AlarmAction::Get, AlarmType::None, None).await
        };
        let answer = self.connection.request(Request::Read, send).await;
        let answer = answer.map_err(|failure| {
            self.connection.read_error(failure).denied(|| Access::Administer("list the alarms"))
        })?;
        let kind = |kind| match kind {
            AlarmType::None => None,
            AlarmType::Nospace => Some(Alarm::NoSpace),
            AlarmType::Corrupt => Some(Alarm::Corrupt),
        };
        Ok(answer
            .alarms()
            .iter()
            .filter_map(|alarm| Some((alarm.member_id(), kind(alarm.alarm())?)))
            .collect())
    }
}

async fn ask(connection: &Connection, urls: &[String]) -> Result<MemberStatus, String> {
    if urls.is_empty() {
        return Err("it has never started".to_string());
    }
    let there = connection.elsewhere(urls, PATIENCE).await.map_err(|error| error.to_string())?;
    let status = |client: Client| async move { client.maintenance_client().status().await };
    let mut answers = there.every_endpoint(PATIENCE, status).await.into_iter();
    match answers.find_map(Result::ok) {
        Some(answer) => Ok(status_of(&answer)),
        None => Err(format!("it does not answer at {}", urls.join(", "))),
    }
}

/// Returns the IP addresses in URLs such as `https://[2001:db8::1]:2379`. Skips host names.
fn addresses<'u>(urls: impl Iterator<Item = &'u String>) -> Vec<IpAddr> {
    let host = |url: &String| url.parse::<Uri>().ok()?.host().map(str::to_string);
    urls.filter_map(host).filter_map(|host| host.trim_matches(['[', ']']).parse().ok()).collect()
}

fn status_of(answer: &StatusResponse) -> MemberStatus {
    MemberStatus {
        version: answer.version().to_string(),
        size: u64::try_from(answer.db_size()).unwrap_or_default(),
        quota: u64::try_from(answer.db_size_quota()).ok().filter(|quota| *quota > 0),
        leader: answer.leader(),
        term: answer.raft_term(),
        index: answer.raft_index(),
        errors: answer.errors().to_vec(),
    }
}
