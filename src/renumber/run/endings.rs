//! What is to be said before and after a rollback, and what steps and waits act on.

use std::net::IpAddr;

use super::approving::{Confirmations, carried_by_all};
use super::{RenumberSession, kubelets};
use crate::operation::{Environment, Lock};
use crate::renumber::live::{Approver, LiveEnvironment, LiveOptions};
use crate::renumber::without_api::WithoutApi;
use crate::renumber::{Effect, Renumbering};
use crate::session::counted;
use crate::survey::{Layout, Survey};

impl RenumberSession {
    /// Says, before a rollback, which kubelets tell Pods an address of the DNS that goes with it.
    pub async fn warn_of_kubelets(&self, work: &Renumbering) {
        let new: Vec<IpAddr> = work.dns().map(|candidate| candidate.new_address).collect();
        let Some(cluster) = self.cluster() else { return };
        if new.is_empty() {
            return;
        }
        let told = match kubelets::told(cluster, &new).await {
            Ok(told) => told,
            Err(error) => {
                self.voice.warn(&format!("the kubelets' `clusterDNS` is not checked: {error}"));
                return;
            }
        };
        if let Some(unseen) = told.unseen() {
            self.voice.warn(&format!(
                "the kubelets' `clusterDNS` is not checked on {} of {} nodes; {unseen}. Check it there: \
                 `grep -A2 clusterDNS /var/lib/kubelet/config.yaml`",
                told.unseen_count(),
                told.count,
            ));
        }
        if let Some(words) = told.words(&new) {
            let set = work.dns().map(|dns| {
                let (old, new) = (dns.old_address, dns.new_address);
                format!("`netsurgeon controlplane set-dns --from {new} --to {old}`")
            });
            self.voice.warn(&format!(
                "{words}; there {}, and restart the kubelet, within {} s of the last move back (`--linger`)",
                set.collect::<Vec<_>>().join(" and "),
                self.linger_of(work).as_secs()
            ));
        }
    }

    /// Reports, after a rollback, Services that were created in the new range, and certificates that carry an address that
    /// is gone.
    pub async fn say_what_is_left(&self, work: &Renumbering) {
        self.report_new_range(work).await;
        let Some(cluster) = self.cluster() else { return };
        if let Some(address) = work.kubernetes().map(|candidate| candidate.new_address)
            && carried_by_all(cluster, address).await
        {
            self.voice.note(&format!(
                "the API servers' certificates carry `{address}` beside the old address, which harms nobody; to take it away: \
                 `netsurgeon certs reissue --drop-ip {address}`"
            ));
        }
    }

    async fn report_new_range(&self, work: &Renumbering) {
        let Ok(survey) = Survey::read(self.store.as_ref(), &Layout::new(&work.prefix), None).await else {
            return;
        };
        let mut there = survey
            .services
            .iter()
            .filter(|service| service.addresses.iter().any(|address| work.to.contains(*address)));
        let Some(first) = there.next() else { return };
        let count = there.count().saturating_add(1);
        self.voice.warn(&format!(
            "{} an address of `{}`, allocated before the rollback; the first is `{}`. They keep it, and its ServiceCIDR stays as \
             long: delete and create each of them again for an address of the old range",
            counted(count, "Service has", "Services have"),
            work.to,
            first.subject()
        ));
    }

    /// Returns who says that others have done what they have to; `moved`: when the last Service moved.
    pub(super) fn approver<'a>(&'a self, work: &'a Renumbering, moved: Option<i64>) -> Confirmations<'a> {
        let given = self.settings.confirm.iter().cloned().collect();
        Confirmations { voice: &self.voice, given, cluster: self.cluster(), work, moved }
    }

    /// Returns what steps and waits act on.
    pub(super) fn environment<'a>(
        &'a self,
        operation: &str,
        work: &'a Renumbering,
        approver: &'a dyn Approver,
        lock: &Lock,
    ) -> Box<dyn Environment<Effect> + 'a> {
        let store = self.store.as_ref();
        match (self.cluster(), self.pause_without_api()) {
            (Some(cluster), _) => {
                let mut options = LiveOptions::new(operation);
                options.reach = self.choices.barrier;
                options.linger = self.linger_of(work);
                options.guards = vec![lock.guard()];
                options.without_api_servers.clone_from(&self.choices.without_api_servers);
                Box::new(LiveEnvironment { cluster, store, work, approver, options })
            }
            (None, pause) => Box::new(WithoutApi { pause: pause.unwrap_or_default() }),
        }
    }
}
