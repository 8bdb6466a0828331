//! Checks whether manual steps are complete. If netsurgeon cannot verify a step, the operator must confirm the step.

use std::collections::BTreeSet;
use std::net::IpAddr;

use async_trait::async_trait;
use serde_json::Value;

use super::range_evidence::allocation_differs;
use super::{kubelets, node_local_dns};
use crate::certs::Certificate;
use crate::controlplane::{Places, endpoints, flags, not_yet};
use crate::ip::{ServiceCidr, as_flag};
use crate::kube_api::{ApiServer, Cluster, Collection, presented_certificate};
use crate::operation::{Answer, Manual, StepFault};
use crate::renumber::Renumbering;
use crate::renumber::environment::Approver;
use crate::session::{LiveEtcd, Ui};
use crate::words::counted;

/// Confirms manual steps in one of three ways: netsurgeon verifies the step, the command line names it, or the operator answers
/// at the prompt.
pub(super) struct Confirmations<'a> {
    pub(super) ui: &'a Ui,
    pub(super) given: BTreeSet<String>,
    /// Client of the API; `None` if the API is not used.
    pub(super) cluster: Option<&'a Cluster>,
    pub(super) store: &'a LiveEtcd,
    pub(super) work: &'a Renumbering,
    /// Time of the last move, in seconds since 1970; `None` if no Service has moved.
    pub(super) moved: Option<i64>,
}

#[async_trait]
impl Approver for Confirmations<'_> {
    async fn confirm(&self, manual: &Manual, back: bool) -> Result<Answer, StepFault> {
        let is_given = self.given.contains(&manual.name);
        if is_given && self.is_believed(&manual.name, back).await {
            return Ok(Answer::Confirmed);
        }
        let seen = self.look(&manual.name, back).await;
        if let Some(Ok(seen)) = &seen {
            self.ui.note(&format!("{}: {seen}", manual.name));
            return Ok(Answer::Confirmed);
        }
        self.ui.note(&required(manual, back));
        if let Some(Err(reason)) = seen {
            self.ui.note(&format!("{}: {reason}", manual.name));
        }
        let is_confirmed = !is_given && self.ui.ask("Is this step complete? (no: pause)").is_ok();
        let is_done = is_confirmed && self.is_believed(&manual.name, back).await;
        Ok(if is_done { Answer::Confirmed } else { Answer::Open })
    }
}

/// Returns the message of an open manual step: what to do, and why. If a rollback undoes the step, the message has no reason.
fn required(manual: &Manual, back: bool) -> String {
    let Manual { name, what, why, undo } = manual;
    match undo {
        Some(undo) if back => format!("waiting for manual step `{name}`: {undo}"),
        _ => format!("waiting for manual step `{name}`: {what}; why: {why}"),
    }
}

impl Confirmations<'_> {
    /// Checks whether a manual step is complete. Returns what was verified, or what is missing; `None` if the step cannot be
    /// checked.
    async fn look(&self, name: &str, back: bool) -> Option<Result<String, String>> {
        let addresses =
            self.work.kubernetes().map(|candidate| (candidate.old_address, candidate.new_address));
        match (name, addresses) {
            ("flags", _) if back => Some(self.every_flag(&self.work.flag_before).await),
            ("flags", _) => Some(self.every_flag(&self.work.flag).await),
            ("other-ranges", _) => Some(self.other_ranges(back).await),
            ("certificates", Some((old, new))) if !back => {
                Some(self.every_certificate(&[old, new], None).await)
            }
            ("cluster-dns", _) if !back => Some(self.every_kubelet().await),
            ("node-local-dns", _) if !back => Some(self.every_cache().await),
            ("certificates-after", Some((old, new))) => {
                let seen = self.every_certificate(&[new], Some(old)).await;
                Some(seen.map(|seen| format!("{seen}; if the deploy lock is set: `netsurgeon unlock`")))
            }
            _ => None,
        }
    }

    /// Returns whether a confirmation is accepted. Warns and returns false if the cluster contradicts the confirmation.
    async fn is_believed(&self, name: &str, back: bool) -> bool {
        let contradiction = match name {
            "flags" if back => self.another_flag(&self.work.flag_before, back).await,
            "flags" => self.another_flag(&self.work.flag, back).await,
            "certificates" if !back => self.uncovered().await,
            _ => None,
        };
        if let Some(reason) = &contradiction {
            self.ui.warn(&format!("the confirmation of `{name}` is refused: {reason}"));
        }
        contradiction.is_none()
    }

    /// Returns a message that names an API server with another range in its flags, or a stored object that an API server has written
    /// with another range. Warns about API servers that cannot be checked.
    async fn another_flag(&self, flag: &[ServiceCidr], back: bool) -> Option<String> {
        let range = as_flag(flag);
        let unread = match flags(self.cluster?, &range).await {
            Ok(found) => {
                if let Some(first) = found.others.first() {
                    return Some(format!("{}: {}, but `{range}` is required", first.subject, first.message));
                }
                found.unread()
            }
            Err(failure) => Some(format!("the flags of API servers cannot be read: {:#}", failure.error)),
        };
        if let Some(stored) = allocation_differs(self.store, self.work, back).await {
            return Some(stored);
        }
        if let Some(unread) = unread {
            self.ui.warn(&format!(
                "`flags` is confirmed, but not verified: {unread}{}",
                if back {
                    ""
                } else {
                    "; `renumber retire` verifies them again, or needs `--accept-unverified-flags`"
                }
            ));
        }
        None
    }

    /// Returns a message that names an API server with a certificate that does not cover the new address. Clients in the cluster
    /// would reject this certificate. Ignores API servers that cannot be reached.
    async fn uncovered(&self) -> Option<String> {
        let address = self.work.kubernetes()?.new_address;
        for server in endpoints(self.cluster?).await.ok()? {
            let certificate = presented(&server.to_string()).await;
            if certificate.is_ok_and(|certificate| !certificate.covers(address)) {
                return Some(does_not_carry(&server, address));
            }
        }
        None
    }

    /// Checks that every API server is ready and has this range. Reads the flags from the API servers' Pods, and from their
    /// processes on this host.
    async fn every_flag(&self, flag: &[ServiceCidr]) -> Result<String, String> {
        let cluster = self.cluster.ok_or("this command does not use the API")?;
        let range = as_flag(flag);
        // Waits for missing API servers. The check below reports an API server that is still missing.
        drop(endpoints(cluster).await);
        match not_yet(cluster, Some(&range), Places::Cluster).await.first() {
            None => Ok(format!("verified: every API server is ready and has `{range}`")),
            Some(first) => Err(format!("{}: {}", first.subject, first.message)),
        }
    }

    /// Checks that the other ServiceCIDRs of the plan are deleted or being deleted. In a rollback, checks that ServiceCIDRs with
    /// the same ranges exist again.
    async fn other_ranges(&self, back: bool) -> Result<String, String> {
        let cluster = self.cluster.ok_or("this command does not use the API")?;
        let all = Collection::new(&self.work.api_version, "ServiceCIDR", None);
        let mut found = cluster.list(&all, None).await.map_err(|error| error.to_string())?;
        // In a rollback, the ServiceCIDRs of the new range are deleted later.
        let ours = ["kubernetes".to_string(), self.work.range_name(), self.work.back_range_name()];
        let is_ours = |cidr: &Value| {
            ours.iter().any(|name| cidr.pointer("/metadata/name").is_some_and(|it| it == name))
        };
        found
            .retain(|cidr| cidr.pointer("/metadata/deletionTimestamp").is_none() && !(back && is_ours(cidr)));
        let has = |cidr: &Value, range: &ServiceCidr| {
            let ranges = cidr.pointer("/spec/cidrs").and_then(Value::as_array);
            ranges.is_some_and(|ranges| ranges.iter().any(|text| *text == range.to_string()))
        };
        for other in &self.work.others {
            let is_named =
                |cidr: &Value| cidr.pointer("/metadata/name").is_some_and(|name| *name == other.name);
            let still =
                found.iter().any(|cidr| is_named(cidr) && other.ranges.iter().any(|range| has(cidr, range)));
            if !back && still {
                return Err(format!("ServiceCIDR `{}` is not deleted", other.name));
            }
            let missing = other.ranges.iter().find(|range| !found.iter().any(|cidr| has(cidr, range)));
            if let Some(range) = missing.filter(|_| back) {
                return Err(format!("no ServiceCIDR has `{range}`"));
            }
        }
        let count = counted(self.work.others.len(), "ServiceCIDR", "ServiceCIDRs");
        Ok(if back {
            format!("verified: the ranges of {count} exist again")
        } else {
            format!("verified: {count} will be deleted with the last old address")
        })
    }

    /// Checks that NodeLocal DNSCache does not use the old DNS address. Its Pods must be newer than the last move.
    async fn every_cache(&self) -> Result<String, String> {
        let cluster = self.cluster.ok_or("this command does not use the API")?;
        let moved = self.moved.ok_or("no Service has moved yet")?;
        let old: Vec<IpAddr> = self.work.dns().map(|candidate| candidate.old_address).collect();
        node_local_dns::followed(cluster, &old, moved).await
    }

    /// Checks that no kubelet configures Pods with the old address of the DNS. The address of a DNS cache on the node is allowed.
    async fn every_kubelet(&self) -> Result<String, String> {
        let cluster = self.cluster.ok_or("this command does not use the API")?;
        let old: Vec<IpAddr> = self.work.dns().map(|candidate| candidate.old_address).collect();
        let told = kubelets::told(cluster, &old).await.map_err(|error| error.to_string())?;
        match (told.words(&old), told.unseen()) {
            (Some(words), _) => Err(words),
            (None, Some(unseen)) => Err(format!(
                "{unseen}; check it on that node with `grep -A2 clusterDNS /var/lib/kubelet/config.yaml`; when every node \
                 has the new address: `--confirm cluster-dns`"
            )),
            (None, None) => {
                let count = counted(told.count, "kubelet", "kubelets");
                Ok(format!("verified: no kubelet configures Pods with the old address ({count} checked)"))
            }
        }
    }

    /// Connects to every API server and checks its certificate. The certificate must cover the addresses `with`, but not the
    /// address `without`.
    async fn every_certificate(&self, with: &[IpAddr], without: Option<IpAddr>) -> Result<String, String> {
        let cluster = self.cluster.ok_or("this command does not use the API")?;
        let servers = endpoints(cluster).await.map_err(|error| error.to_string())?;
        for server in &servers {
            let certificate = presented(&server.to_string()).await?;
            if let Some(missing) = with.iter().find(|address| !certificate.covers(**address)) {
                return Err(does_not_carry(server, *missing));
            }
            if let Some(old) = without.filter(|address| certificate.covers(*address)) {
                return Err(format!("the certificate of {server} still covers `{old}`"));
            }
        }
        let names: Vec<String> = servers.iter().map(ToString::to_string).collect();
        Ok(format!("verified: the certificates of {}", names.join(", ")))
    }
}

fn does_not_carry(server: &ApiServer, address: IpAddr) -> String {
    format!("the certificate of {server} does not cover `{address}`")
}

/// Returns whether the certificate of every API server covers this address.
pub(super) async fn carried_by_all(cluster: &Cluster, address: IpAddr) -> bool {
    let servers = endpoints(cluster).await.unwrap_or_default();
    for server in &servers {
        if !presented(&server.to_string()).await.is_ok_and(|certificate| certificate.covers(address)) {
            return false;
        }
    }
    !servers.is_empty()
}

async fn presented(server: &str) -> Result<Certificate, String> {
    let chain = presented_certificate(server, None).await.map_err(|error| format!("{server}: {error}"))?;
    let first = chain.into_iter().next().ok_or_else(|| format!("{server} presents no certificate"))?;
    Certificate::from_der(first).map_err(|error| format!("{server}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_step_of_rollback_names_only_old_range() {
        let manual = Manual {
            name: "flags".into(),
            what: "set the flag to `10.200.0.0/16`".into(),
            why: "an API server with `10.96.0.0/16` would make that range again".into(),
            undo: Some("set the flag to `10.96.0.0/16`".into()),
        };
        let forward = "waiting for manual step `flags`: set the flag to `10.200.0.0/16`; why: an API server with \
                       `10.96.0.0/16` would make that range again";
        assert_eq!(required(&manual, false), forward);
        assert_eq!(
            required(&manual, true),
            "waiting for manual step `flags`: set the flag to `10.96.0.0/16`"
        );
    }
}
