//! The changes that the guard makes to restore a hold during a soak, or to remove the hold of a deleted Service.

use std::net::IpAddr;

use super::edits::{create, dated, discard, one, owned_as, owned_by, text};
use super::{AHEAD_SECONDS, Compiler, shadow};
use crate::operation::{KeyChange, KeyEdit};
use crate::renumber::intention::{Move, Shadow};
use crate::renumber::plan::renamed;
use crate::survey::ServiceRecord;
use crate::wire::edit::Condition;
use crate::wire::{Field, FieldEdit, Text, Value};

impl Compiler<'_> {
    /// Restores the hold of the old address in the Service with this uid. `found` contains the external IPs and the traffic
    /// policy of the Service, as they were read.
    pub(in crate::renumber) fn hold_again(
        &self,
        candidate: &Move,
        uid: &str,
        found: (Value, Option<&str>),
    ) -> KeyEdit {
        let (external_ips, policy) = found;
        let edits = vec![
            FieldEdit::replace(Field::external_ips(), external_ips, one(candidate.old_address)),
            FieldEdit::replace(Field::external_traffic_policy(), Value::text(policy), text("Local")),
        ];
        let require = vec![Condition::Holds(Field::uid(), text(uid))];
        let key = self.layout.service(&candidate.namespace, &candidate.name);
        KeyEdit { key, change: KeyChange::Edit { require, edits, fill: Vec::new() } }
    }

    /// Restores the old address of a Service whose owner changed its external IPs after the move. In the list of external IPs,
    /// the new address replaces the old address. If the list does not contain the old address, and the Service has type
    /// ClusterIP, the new address is added.
    pub(in crate::renumber) fn flip_back(&self, candidate: &Move, service: &ServiceRecord) -> KeyEdit {
        let (old, new) = (candidate.old_address, candidate.new_address);
        let (listed, policy) = (&service.spec.external_ips, service.spec.external_traffic_policy.as_deref());
        let mut after = renamed(listed, old, new);
        if service.kind() == "ClusterIP" && !after.iter().any(|text| text.parse() == Ok(new)) {
            after.push(new.to_string().into());
        }
        let mut edits = vec![
            FieldEdit::replace(
                Field::cluster_ip(),
                Value::text(candidate.new.first().map(Text::as_str)),
                Value::text(candidate.old.first().map(Text::as_str)),
            ),
            FieldEdit::replace(
                Field::cluster_ips(),
                Value::texts(&candidate.new),
                if candidate.without_list { Value::Absent } else { Value::texts(&candidate.old) },
            ),
            FieldEdit::replace(Field::external_ips(), Value::texts(listed), Value::texts(&after)),
        ];
        if service.kind() == "ClusterIP" && after.iter().all(|text| text.parse() == Ok(new)) {
            edits.push(FieldEdit::replace(
                Field::external_traffic_policy(),
                Value::text(policy),
                text("Local"),
            ));
        }
        let require = vec![Condition::Holds(Field::uid(), text(&service.uid))];
        let key = self.layout.service(&candidate.namespace, &candidate.name);
        KeyEdit { key, change: KeyChange::Edit { require, edits, fill: Vec::new() } }
    }

    /// Removes addresses from the current external IPs of a Service. Also resets the traffic policy that netsurgeon set, unless
    /// the Service needs a policy for its own node ports.
    pub(in crate::renumber) fn route_no_more(
        &self,
        candidate: &Move,
        service: &ServiceRecord,
        addresses: &[IpAddr],
    ) -> KeyEdit {
        let listed = &service.spec.external_ips;
        let is_ours = |text: &&Text| text.parse().is_ok_and(|address| addresses.contains(&address));
        let rest: Vec<Text> = listed.iter().filter(|text| !is_ours(text)).cloned().collect();
        let mut edits =
            vec![FieldEdit::replace(Field::external_ips(), Value::texts(listed), Value::texts(&rest))];
        // The API does not allow a traffic policy for a ClusterIP Service without external IPs. With external IPs, the default
        // policy is `Cluster`.
        let found = service.spec.external_traffic_policy.as_deref();
        let is_to_go = if rest.is_empty() { found.is_some() } else { found == Some("Local") };
        if service.kind() == "ClusterIP" && is_to_go {
            let default = (!rest.is_empty()).then_some("Cluster");
            let own = candidate.traffic_policy.as_deref().filter(|_| service.uid == candidate.uid);
            edits.push(FieldEdit::replace(
                Field::external_traffic_policy(),
                Value::text(found),
                Value::text(own.or(default)),
            ));
        }
        let require = vec![Condition::Holds(Field::uid(), text(&service.uid))];
        let key = self.layout.service(&candidate.namespace, &candidate.name);
        KeyEdit { key, change: KeyChange::Edit { require, edits, fill: Vec::new() } }
    }

    /// Recreates the IPAddress of one of the Service's addresses, with a creation timestamp in the future.
    pub(in crate::renumber) fn reserve_again(&self, candidate: &Move, address: IpAddr) -> KeyEdit {
        let value = self.new_ip_address(address, candidate);
        create(self.layout.ip_address(address), value, AHEAD_SECONDS)
    }

    /// Recreates the IPAddress of one of the Service's addresses. Like an API server, sets the creation timestamp to the current
    /// time.
    pub(in crate::renumber) fn allocate_again(&self, candidate: &Move, address: IpAddr) -> KeyEdit {
        create(self.layout.ip_address(address), self.new_ip_address(address, candidate), 0)
    }

    /// Sets the creation timestamp of one of the Service's IPAddress objects to the future again.
    pub(in crate::renumber) fn reserve_longer(&self, candidate: &Move, address: IpAddr) -> KeyEdit {
        dated(self.layout.ip_address(address), owned_by(candidate), AHEAD_SECONDS)
    }

    /// Assigns an IPAddress to the Service again, after a repair loop recreated it for one of the Service's shadows.
    pub(in crate::renumber) fn reserve_back(
        &self,
        candidate: &Move,
        address: IpAddr,
        shadow: &str,
    ) -> KeyEdit {
        let mut edit = dated(self.layout.ip_address(address), owned_as(candidate, shadow), AHEAD_SECONDS);
        if let KeyChange::Edit { edits, .. } = &mut edit.change {
            edits.push(FieldEdit::replace(Field::parent_name(), text(shadow), text(&candidate.name)));
        }
        edit
    }

    /// Frees the old or the new address, if its IPAddress still refers to `parent`, which is the Service or one of its shadows.
    /// With `created`, the IPAddress must also still have this creation time, in seconds since 1970.
    pub(in crate::renumber) fn free(
        &self,
        candidate: &Move,
        address: IpAddr,
        parent: &str,
        created: Option<i64>,
    ) -> KeyEdit {
        let mut holds = owned_as(candidate, parent);
        holds.extend(created.map(|at| Condition::Holds(Field::creation_timestamp(), Value::Time(at))));
        discard(self.layout.ip_address(address), holds)
    }

    /// Deletes a shadow that has these addresses, directly in etcd.
    pub(in crate::renumber) fn drop_shadow(
        &self,
        candidate: &Move,
        shadow: &str,
        addresses: &[IpAddr],
    ) -> KeyEdit {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let require = vec![Condition::Holds(Field::cluster_ips(), Value::texts(&addresses))];
        KeyEdit {
            key: self.layout.service(&candidate.namespace, shadow),
            change: KeyChange::Delete { require },
        }
    }

    /// Recreates the shadow that holds the old address, with the spec in `shadow`.
    pub(in crate::renumber) fn shadow_again(&self, candidate: &Move, shadow: &Shadow) -> KeyEdit {
        let value = shadow::manifest(candidate, shadow, &shadow.hold_name, candidate.old_address, &[]);
        let key = self.layout.service(&candidate.namespace, &shadow.hold_name);
        create(key, format!("{value}\n").into_bytes(), 0)
    }
}
