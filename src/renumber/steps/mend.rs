//! The changes by which the guard of a soak puts a hold back, or gives up one whose Service is gone.

use std::net::IpAddr;

use super::edits::{create, date, managed_by, one, relabel, text};
use super::{AHEAD_SECONDS, Compiler, shadow};
use crate::operation::{KeyChange, KeyEdit};
use crate::renumber::intention::{Move, Shadow};
use crate::wire::edit::Condition;
use crate::wire::objects::{ALLOCATOR, NETSURGEON};
use crate::wire::{Field, FieldEdit, Text, Value};

impl Compiler<'_> {
    /// Holds the old address by the Service that has this uid now. `found`: its external IPs and its traffic
    /// policy as they were seen.
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

    /// Stops holding the old address by a Service that was made anew and is held by its name. `found`: its
    /// external IPs and its traffic policy as they were seen.
    pub(in crate::renumber) fn hold_no_more(
        &self,
        candidate: &Move,
        uid: &str,
        found: (&[Text], Option<&str>),
    ) -> KeyEdit {
        let (listed, policy) = found;
        let is_ours = |text: &&Text| text.parse() == Ok(candidate.old_address);
        let rest: Vec<Text> = listed.iter().filter(|text| !is_ours(text)).cloned().collect();
        let mut edits =
            vec![FieldEdit::replace(Field::external_ips(), Value::texts(listed), Value::texts(&rest))];
        // A Service that takes nothing from outside must not have a policy for it.
        if rest.is_empty() && policy == Some("Local") {
            edits.push(FieldEdit::replace(Field::external_traffic_policy(), text("Local"), Value::Absent));
        }
        let require = vec![Condition::Holds(Field::uid(), text(uid))];
        let key = self.layout.service(&candidate.namespace, &candidate.name);
        KeyEdit { key, change: KeyChange::Edit { require, edits, fill: Vec::new() } }
    }

    /// Reserves the old address anew, which has no IPAddress any more.
    pub(in crate::renumber) fn reserve_old(&self, candidate: &Move) -> KeyEdit {
        let value = self.new_ip_address(candidate.old_address, candidate, &candidate.name, NETSURGEON);
        create(self.layout.ip_address(candidate.old_address), value, 0)
    }

    /// Takes the IPAddress of the old address back from the allocator, while it is still for this Service.
    pub(in crate::renumber) fn take_old(&self, candidate: &Move) -> KeyEdit {
        let mut edit = relabel(self.layout.ip_address(candidate.old_address), ALLOCATOR, NETSURGEON, None);
        if let KeyChange::Edit { require, .. } = &mut edit.change {
            require.extend(is_for(candidate, &candidate.name));
        }
        edit
    }

    /// Gives up the reservation of an address, the old or the new one.
    pub(in crate::renumber) fn free(&self, candidate: &Move, address: IpAddr) -> KeyEdit {
        let mut require = is_for(candidate, &candidate.name);
        require.push(managed_by(NETSURGEON));
        KeyEdit { key: self.layout.ip_address(address), change: KeyChange::Delete { require } }
    }

    /// Removes the shadow that holds the old address, and the address with it; in etcd, as retiring does.
    pub(in crate::renumber) fn free_shadow(
        &self,
        candidate: &Move,
        shadow: &Shadow,
        with: bool,
    ) -> Vec<KeyEdit> {
        let (old, name) = (candidate.old_address, &shadow.hold_name);
        let mut edits = vec![self.drop_shadow(candidate, name, &[old])];
        edits.extend(with.then(|| self.drop_address(candidate, name, old)));
        edits
    }

    /// Removes a shadow, in etcd, that has these addresses.
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

    /// Removes an address that is a shadow's.
    pub(in crate::renumber) fn drop_address(
        &self,
        candidate: &Move,
        shadow: &str,
        address: IpAddr,
    ) -> KeyEdit {
        let require = is_for(candidate, shadow);
        KeyEdit { key: self.layout.ip_address(address), change: KeyChange::Delete { require } }
    }

    /// Hands an address to the allocator whose IPAddress is gone, ahead of the Service of that name: dated ahead, because
    /// the repair loop leaves a young address alone whose Service does not list it yet.
    pub(in crate::renumber) fn hand_over_again(
        &self,
        candidate: &Move,
        address: IpAddr,
        parent: &str,
    ) -> KeyEdit {
        let value = self.new_ip_address(address, candidate, parent, ALLOCATOR);
        create(self.layout.ip_address(address), value, AHEAD_SECONDS)
    }

    /// Dates an IPAddress ahead anew that is the allocator's, and for the Service of that name.
    pub(in crate::renumber) fn hand_over_longer(
        &self,
        candidate: &Move,
        address: IpAddr,
        parent: &str,
    ) -> KeyEdit {
        let mut require = is_for(candidate, parent);
        require.push(managed_by(ALLOCATOR));
        let (edits, fill) = (Vec::new(), date(AHEAD_SECONDS));
        KeyEdit { key: self.layout.ip_address(address), change: KeyChange::Edit { require, edits, fill } }
    }

    /// Makes the shadow that holds the old address anew, as its `spec` says.
    pub(in crate::renumber) fn shadow_again(&self, candidate: &Move, shadow: &Shadow) -> KeyEdit {
        let value = shadow::manifest(candidate, shadow, &shadow.hold_name, candidate.old_address);
        let key = self.layout.service(&candidate.namespace, &shadow.hold_name);
        create(key, format!("{value}\n").into_bytes(), 0)
    }
}

fn is_for(candidate: &Move, name: &str) -> Vec<Condition> {
    vec![
        Condition::Holds(Field::parent_namespace(), text(&candidate.namespace)),
        Condition::Holds(Field::parent_name(), text(name)),
    ]
}
