//! The single steps of a renumbering.
//!
//! Every step names, in both directions, what must be there and what shall be there, so that it works on
//! the objects as they are when it is carried out, and refuses where someone else has changed an address.

use std::net::IpAddr;

use super::hold::Hold;
use super::plan::{Move, Renumbering, Shadow};
use crate::operation::{
    Action, ApiChange, External, Fill, Generated, KeyChange, KeyCheck, KeyEdit, Step, StepId, Swap, Wait,
};
use crate::store::Key;
use crate::survey::{Era, Layout};
use crate::wire::bitmap::Bitmap;
use crate::wire::edit::{Condition, FieldChange};
use crate::wire::objects::{ALLOCATOR, MANAGED_BY, NETSURGEON, NewIpAddress};
use crate::wire::{Field, FieldEdit, Value};

/// How far ahead of now an address is dated that is handed to the allocator before its Service has it: the
/// repair loop leaves younger ones alone (`repairip.go`, 1.33.6 and later). Long enough for a batch, whatever
/// stalls.
const AHEAD_SECONDS: i64 = 120;

/// Compiles the steps of one renumbering.
pub(super) struct Compiler<'a> {
    pub(super) work: &'a Renumbering,
    pub(super) layout: &'a Layout,
}

fn step(name: &str, subject: &str, action: Action) -> Step {
    Step { id: StepId(format!("{name}/{subject}")), about: String::new(), action }
}

/// A step that belongs to one Service: it is left alone on the way back once another of that Service cannot
/// be undone.
fn step_of(candidate: &Move, name: &str, action: Action) -> Step {
    Step { about: candidate.subject(), ..step(name, &candidate.subject(), action) }
}

fn swap(edits: Vec<KeyEdit>) -> Swap {
    Swap { edits, checks: Vec::new() }
}

fn both(forward: Vec<KeyEdit>, backward: Vec<KeyEdit>) -> Action {
    Action::Swap { forward: swap(forward), backward: Some(swap(backward)) }
}

/// A transaction that belongs to the way back of a Service's flip.
fn way_back(name: &str, candidate: &Move, swap: Swap) -> Step {
    let of = StepId(format!("flip/{}", candidate.subject()));
    step_of(candidate, name, Action::WayBack { of, swap })
}

/// Waiting for every kube-proxy to have applied what was written.
pub(super) fn barrier(name: &str, batch: usize) -> Step {
    let until = "every kube-proxy has applied everything written so far".to_string();
    step(name, &format!("{batch:05}"), Action::Wait(Wait { name: "barrier".into(), until }))
}

/// The step after which there is no way back.
pub(super) fn no_return() -> Step {
    step("no-return", "all", Action::PointOfNoReturn)
}

fn external(name: &str, what: String, why: &str) -> Step {
    let external = External { what, why: why.to_string(), assumed: None, assumed_back: None };
    step("external", name, Action::External(external))
}

impl Compiler<'_> {
    pub(super) fn prepare(&self) -> Vec<Step> {
        let first = self.work.to.first().map(|address| address.to_string()).unwrap_or_default();
        vec![
            external(
                "snapshot",
                "take a snapshot of etcd and verify it; lock the deploy pipelines".to_string(),
                "it is the way back if everything else fails",
            ),
            external(
                "certificates",
                format!(
                    "every API server serves a certificate that carries `{first}` beside the old first address"
                ),
                "in-cluster clients verify the API server by the address of `default/kubernetes`",
            ),
        ]
    }

    /// The API servers' flag; in the bitmap era it comes first, and the API servers then rewrite the bitmap
    /// themselves. Under dual write nobody does, so a step of ours follows.
    pub(super) fn flags(&self) -> Vec<Step> {
        let what = format!("set `--service-cluster-ip-range` to `{}` on every API server", self.work.to);
        let why = match self.work.era {
            Era::Bitmap => {
                "with different flags API servers overwrite each other's RangeAllocation; freeze Service \
                            creation until all agree"
            }
            _ => "an API server with the old flag would make the old range again",
        };
        let mut flags = External { what, why: why.to_string(), assumed: None, assumed_back: None };
        let Some((forward, backward)) = self.bitmap_rewrite() else {
            return vec![step("external", "flags", Action::External(flags))];
        };
        if self.work.era == Era::Bitmap {
            flags.assumed = Some(forward);
            flags.assumed_back = Some(backward);
            return vec![step("external", "flags", Action::External(flags))];
        }
        let rewrite = Action::Swap { forward, backward: Some(backward) };
        vec![
            step("external", "flags", Action::External(flags)),
            step("rewrite-bitmap", &self.work.to.to_string().replace('/', "-"), rewrite),
        ]
    }

    fn bitmap_rewrite(&self) -> Option<(Swap, Swap)> {
        let change = self.work.bitmap.as_ref()?;
        let after = match self.work.era {
            Era::Bitmap => change.data_after.clone(),
            _ => self.all_bits(&change.data_after),
        };
        let key = self.layout.range(&change.name);
        let edits = vec![
            FieldEdit::replace(Field::range(), text(&change.from), text(&self.work.to.to_string())),
            FieldEdit::replace(Field::data(), bytes(&change.data_before), bytes(&after)),
        ];
        let back = edits.iter().filter_map(FieldEdit::inverse).collect();
        let edit = |edits| KeyEdit {
            key: key.clone(),
            change: KeyChange::Edit { require: Vec::new(), edits, fill: Vec::new() },
        };
        Some((swap(vec![edit(edits)]), swap(vec![edit(back)])))
    }

    /// The bits of the new range once all Services have moved.
    fn all_bits(&self, there: &[u8]) -> Vec<u8> {
        let mut bits = Bitmap::from_bytes(there, self.bitmap_capacity())
            .unwrap_or_else(|_| Bitmap::empty(self.bitmap_capacity()));
        for candidate in &self.work.moves {
            bits.set(self.bit(candidate.new_address), true);
        }
        bits.to_bytes()
    }

    fn bitmap_capacity(&self) -> u64 {
        u64::try_from(self.work.to.bitmap_capacity()).unwrap_or(0)
    }

    fn bit(&self, address: IpAddr) -> u64 {
        self.work.to.bit_of(address).and_then(|bit| u64::try_from(bit).ok()).unwrap_or(u64::MAX)
    }

    /// Makes the IPAddress of a target address, ours: the allocator does not give it away, the repair loop
    /// leaves it alone.
    pub(super) fn reserve(&self, candidate: &Move) -> Step {
        let key = self.layout.ip_address(candidate.new_address);
        let value = self.new_ip_address(candidate.new_address, candidate, &candidate.name, NETSURGEON);
        let forward = vec![create(key.clone(), value, 0)];
        let backward =
            vec![KeyEdit { key, change: KeyChange::Delete { require: vec![managed_by(NETSURGEON)] } }];
        step_of(candidate, "reserve", both(forward, backward))
    }

    fn new_ip_address(&self, address: IpAddr, candidate: &Move, parent: &str, managed_by: &str) -> Vec<u8> {
        let new = NewIpAddress {
            api_version: &self.work.api_version,
            address,
            parent: (&candidate.namespace, parent),
            managed_by,
            uid: "",
            created: 0,
        };
        new.encode(self.work.encoding)
    }

    pub(super) fn open_range(&self) -> Step {
        let name = self.range_name();
        let manifest = serde_json::json!({
            "apiVersion": self.work.api_version, "kind": "ServiceCIDR",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "netsurgeon"}},
            "spec": {"cidrs": [self.work.to]},
        });
        let backward = ApiChange::Delete {
            api_version: self.work.api_version.clone(),
            kind: "ServiceCIDR".into(),
            namespace: None,
            name: name.clone(),
        };
        step(
            "open-range",
            &name,
            Action::Api { forward: ApiChange::Create { manifest }, backward: Some(backward) },
        )
    }

    fn range_name(&self) -> String {
        let network = self.work.to.network().to_string().replace(['.', ':'], "-");
        format!("netsurgeon-{}-{}", network.trim_matches('-').replace("--", "-"), self.work.to.prefix_len())
    }

    pub(super) fn reserve_bits(&self, batch: usize, moves: &[Move]) -> Step {
        let bits: Vec<u64> = moves.iter().map(|candidate| self.bit(candidate.new_address)).collect();
        step(
            "reserve",
            &format!("{batch:05}"),
            both(self.bits(bits.clone(), Vec::new()), self.bits(Vec::new(), bits)),
        )
    }

    fn range_key(&self) -> Key {
        let name = self.work.bitmap.as_ref().map_or("serviceips", |change| change.name.as_str());
        self.layout.range(name)
    }

    fn bits(&self, set: Vec<u64>, clear: Vec<u64>) -> Vec<KeyEdit> {
        let bits = FieldChange::Bits { capacity: self.bitmap_capacity(), set, clear };
        let edits = vec![FieldEdit { field: Field::data(), change: bits }];
        let require = vec![Condition::Holds(Field::range(), text(&self.work.to.to_string()))];
        vec![KeyEdit { key: self.range_key(), change: KeyChange::Edit { require, edits, fill: Vec::new() } }]
    }

    /// Adds the new address as an external IP, so that every node routes it before any DNS answer names it.
    pub(super) fn prewarm(&self, candidate: &Move) -> Option<Step> {
        if candidate.hold != Hold::ExternalIp {
            return None;
        }
        let policy = Value::text(candidate.traffic_policy.as_deref());
        let edits = vec![
            FieldEdit::replace(Field::external_ips(), Value::Absent, one(candidate.new_address)),
            FieldEdit::replace(Field::external_traffic_policy(), policy, text("Local")),
        ];
        Some(step_of(candidate, "prewarm", self.edit_service(candidate, edits)))
    }

    fn edit_service(&self, candidate: &Move, edits: Vec<FieldEdit>) -> Action {
        let back = inverse(&edits);
        both(vec![self.service_edit(candidate, edits)], vec![self.service_edit(candidate, back)])
    }

    fn service_edit(&self, candidate: &Move, edits: Vec<FieldEdit>) -> KeyEdit {
        let key = self.layout.service(&candidate.namespace, &candidate.name);
        let require = vec![Condition::Holds(Field::uid(), text(&candidate.uid))];
        KeyEdit { key, change: KeyChange::Edit { require, edits, fill: Vec::new() } }
    }

    /// Hands the new address to the allocator ahead of the flip; taken back on the way back.
    pub(super) fn hand_over(&self, candidate: &Move) -> Step {
        let key = self.layout.ip_address(candidate.new_address);
        let forward = vec![relabel(key.clone(), NETSURGEON, ALLOCATOR, Some(AHEAD_SECONDS))];
        let backward = vec![relabel(key, ALLOCATOR, NETSURGEON, None)];
        step_of(candidate, "hand-over", both(forward, backward))
    }

    /// The counterpart of [`Self::hand_over`] for the way back: the old address goes to the allocator ahead
    /// of the flip back. Forward there is nothing to do.
    pub(super) fn hand_back(&self, candidate: &Move) -> Option<Step> {
        if candidate.hold != Hold::ExternalIp || candidate.old_object_missing {
            return None;
        }
        let key = self.layout.ip_address(candidate.old_address);
        let mut back = swap(vec![relabel(key, NETSURGEON, ALLOCATOR, Some(AHEAD_SECONDS))]);
        back.checks.push(self.is_as_moved(candidate));
        Some(way_back("hand-back", candidate, back))
    }

    /// What the first change on a Service's way back makes sure of: that the Service is still as it was moved,
    /// so that its flip can be undone, and nothing needs to be touched if not.
    fn is_as_moved(&self, candidate: &Move) -> KeyCheck {
        let mut conditions = vec![
            Condition::Holds(Field::uid(), text(&candidate.uid)),
            Condition::Holds(Field::cluster_ip(), Value::text(candidate.new.first().map(String::as_str))),
            Condition::Holds(Field::cluster_ips(), Value::texts(candidate.new.clone())),
        ];
        if candidate.hold == Hold::ExternalIp {
            conditions.push(Condition::Holds(Field::external_ips(), one(candidate.old_address)));
        }
        KeyCheck { key: self.layout.service(&candidate.namespace, &candidate.name), conditions }
    }

    /// Dates the new address as made now, once its Service has it.
    pub(super) fn settle(&self, candidate: &Move) -> Step {
        let forward = swap(vec![date_now(self.layout.ip_address(candidate.new_address))]);
        step_of(candidate, "settle", Action::Swap { forward, backward: None })
    }

    /// The same for the old address on the way back.
    pub(super) fn settle_old(&self, candidate: &Move) -> Option<Step> {
        if candidate.hold != Hold::ExternalIp {
            return None;
        }
        let key = self.layout.ip_address(candidate.old_address);
        let edit = if candidate.old_object_missing {
            KeyEdit { key, change: KeyChange::Delete { require: vec![managed_by(NETSURGEON)] } }
        } else {
            date_now(key)
        };
        Some(way_back("settle-old", candidate, swap(vec![edit])))
    }

    /// The move itself: the Service gets the new address, and what holds the old one takes it, in one
    /// transaction.
    pub(super) fn flip(&self, candidate: &Move) -> Step {
        let mut edits = Vec::new();
        if let (Some(before), Some(after)) = (candidate.old.first(), candidate.new.first()) {
            edits.push(FieldEdit::replace(Field::cluster_ip(), text(before), text(after)));
        }
        let lists = (Value::Texts(candidate.old.clone()), Value::Texts(candidate.new.clone()));
        edits.push(FieldEdit::replace(Field::cluster_ips(), lists.0, lists.1));
        if candidate.hold == Hold::ExternalIp {
            let (new, old) = (one(candidate.new_address), one(candidate.old_address));
            edits.push(FieldEdit::replace(Field::external_ips(), new, old));
        }
        let back = inverse(&edits);
        let mut forward = swap(vec![self.service_edit(candidate, edits)]);
        let mut backward = swap(vec![self.service_edit(candidate, back)]);
        if self.work.era == Era::Bitmap {
            forward.checks.push(self.bit_is_ours(candidate));
        } else {
            forward.edits.extend(self.release_old(candidate, true));
            backward.edits.extend(self.release_old(candidate, false));
        }
        step_of(candidate, "flip", Action::Swap { forward, backward: Some(backward) })
    }

    /// A repair round of an API server may have freed a bit that no Service had yet.
    fn bit_is_ours(&self, candidate: &Move) -> KeyCheck {
        let bits = vec![self.bit(candidate.new_address)];
        let capacity = self.bitmap_capacity();
        let conditions = vec![
            Condition::Holds(Field::range(), text(&self.work.to.to_string())),
            Condition::BitsSet { field: Field::data(), capacity, bits },
        ];
        KeyCheck { key: self.range_key(), conditions }
    }

    /// What happens to the IPAddress objects in the transaction of a flip, forward or back.
    fn release_old(&self, candidate: &Move, forward: bool) -> Vec<KeyEdit> {
        let old = self.layout.ip_address(candidate.old_address);
        match (&candidate.shadow, forward) {
            (None, true) if candidate.old_object_missing => {
                let address = candidate.old_address;
                vec![create(old, self.new_ip_address(address, candidate, &candidate.name, NETSURGEON), 0)]
            }
            (Some(shadow), true) if candidate.old_object_missing => {
                let address = candidate.old_address;
                vec![create(old, self.new_ip_address(address, candidate, &shadow.hold_name, ALLOCATOR), 0)]
            }
            (Some(_), false) if candidate.old_object_missing => {
                vec![KeyEdit { key: old, change: KeyChange::Delete { require: Vec::new() } }]
            }
            (None, true) => vec![relabel(old, ALLOCATOR, NETSURGEON, None)],
            (None, false) => {
                vec![relabel(self.layout.ip_address(candidate.new_address), ALLOCATOR, NETSURGEON, None)]
            }
            (Some(shadow), true) => vec![reparent(old, &candidate.name, &shadow.hold_name)],
            (Some(shadow), false) => vec![reparent(old, &shadow.hold_name, &candidate.name)],
        }
    }

    /// Makes the shadow Services of a batch, waits for their endpoints, and gives them their addresses.
    pub(super) fn shadows(&self, batch: usize, moves: &[Move]) -> Vec<Step> {
        let with_shadow = || moves.iter().filter_map(|m| m.shadow.as_ref().map(|shadow| (m, shadow)));
        let mut steps = Vec::new();
        for (candidate, shadow) in with_shadow() {
            for (name, temporary) in parts_of(shadow) {
                steps.push(self.make_shadow(candidate, shadow, name, temporary));
            }
        }
        let until =
            "the shadow Services have the endpoints of the Services that they stand in for".to_string();
        let wait = Action::Wait(Wait { name: "endpoints".into(), until });
        steps.push(step("endpoints", &format!("{batch:05}"), wait));
        for (candidate, shadow) in with_shadow() {
            let addresses = [candidate.old_address, candidate.new_address];
            for ((name, temporary), address) in parts_of(shadow).into_iter().zip(addresses) {
                steps.push(self.give_address(candidate, name, temporary, address));
            }
        }
        steps
    }

    fn make_shadow(&self, candidate: &Move, shadow: &Shadow, name: &str, temporary: IpAddr) -> Step {
        let forward = ApiChange::Create { manifest: manifest(candidate, shadow, name, temporary) };
        let backward = ApiChange::Delete {
            api_version: "v1".into(),
            kind: "Service".into(),
            namespace: Some(candidate.namespace.clone()),
            name: name.to_string(),
        };
        let action = Action::Api { forward, backward: Some(backward) };
        shadow_step(candidate, "make-shadow", name, action)
    }

    /// Gives a shadow its address in etcd, in place of the temporary one, which becomes free.
    fn give_address(&self, candidate: &Move, name: &str, temporary: IpAddr, address: IpAddr) -> Step {
        let key = self.layout.service(&candidate.namespace, name);
        let edits = vec![
            FieldEdit::replace(Field::cluster_ip(), text(&temporary.to_string()), text(&address.to_string())),
            FieldEdit::replace(Field::cluster_ips(), one(temporary), one(address)),
        ];
        let back = inverse(&edits);
        let edit = |edits| KeyEdit {
            key: key.clone(),
            change: KeyChange::Edit { require: Vec::new(), edits, fill: Vec::new() },
        };
        let (mut forward, mut backward) = (vec![edit(edits)], vec![edit(back)]);
        if self.work.era == Era::Bitmap {
            forward.extend(self.bits(Vec::new(), vec![self.bit(temporary)]));
            backward.extend(self.bits(vec![self.bit(temporary)], Vec::new()));
        } else {
            let object = self.layout.ip_address(temporary);
            let require = vec![Condition::Holds(Field::parent_name(), text(name))];
            forward.push(KeyEdit { key: object.clone(), change: KeyChange::Delete { require } });
            backward.push(create(object, self.new_ip_address(temporary, candidate, name, ALLOCATOR), 0));
        }
        shadow_step(candidate, "give-address", name, both(forward, backward))
    }

    /// Removes the shadow that warmed the new address up. In etcd: through the API the address, which the
    /// Service has by now, would be released with it.
    pub(super) fn unwarm(&self, candidate: &Move) -> Option<Step> {
        let shadow = candidate.shadow.as_ref()?;
        let key = self.layout.service(&candidate.namespace, &shadow.warm_name);
        let require = vec![Condition::Holds(Field::cluster_ips(), one(candidate.new_address))];
        let forward = vec![KeyEdit { key: key.clone(), change: KeyChange::Delete { require } }];
        let value = manifest(candidate, shadow, &shadow.warm_name, candidate.new_address);
        let backward = vec![create(key, format!("{value}\n").into_bytes(), 0)];
        let backward = Swap { edits: backward, checks: vec![self.is_as_moved(candidate)] };
        let action = Action::Swap { forward: swap(forward), backward: Some(backward) };
        Some(step_of(candidate, "unwarm", action))
    }

    pub(super) fn close(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.work.era != Era::Bitmap {
            steps.push(external(
                "close-range",
                "delete ServiceCIDR `kubernetes`; it goes once no allocated address is left in it, and the API \
                 server makes it again from its flag"
                    .to_string(),
                "new Services would still be given addresses of the old range",
            ));
        }
        steps.push(external(
            "soak",
            "restart what still has an old address: Pods with an old `resolv.conf` or environment, CNI kubeconfigs \
             on hosts; set the kubelets' `clusterDNS`; wait until nothing uses an old address"
                .to_string(),
            "an old address stops answering when it is retired",
        ));
        steps
    }

    /// Stops holding an old address.
    pub(super) fn retire(&self, candidate: &Move) -> Step {
        let mut edits = match &candidate.shadow {
            None => {
                let policy = Value::text(candidate.traffic_policy.as_deref());
                vec![self.service_edit(
                    candidate,
                    vec![
                        FieldEdit::replace(Field::external_ips(), one(candidate.old_address), Value::Absent),
                        FieldEdit::replace(Field::external_traffic_policy(), text("Local"), policy),
                    ],
                )]
            }
            Some(shadow) => {
                let key = self.layout.service(&candidate.namespace, &shadow.hold_name);
                let require = vec![Condition::Holds(Field::cluster_ips(), one(candidate.old_address))];
                vec![KeyEdit { key, change: KeyChange::Delete { require } }]
            }
        };
        if self.work.era != Era::Bitmap {
            let key = self.layout.ip_address(candidate.old_address);
            let require = match &candidate.shadow {
                None => managed_by(NETSURGEON),
                Some(shadow) => Condition::Holds(Field::parent_name(), text(&shadow.hold_name)),
            };
            edits.push(KeyEdit { key, change: KeyChange::Delete { require: vec![require] } });
        }
        let forward = swap(edits);
        step_of(candidate, "retire", Action::Swap { forward, backward: None })
    }

    pub(super) fn finish(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.work.era != Era::Bitmap {
            steps.push(external(
                "temporary-range",
                format!("delete ServiceCIDR `{}` once `kubernetes` has the new range", self.range_name()),
                "it was only needed until the API servers' own ServiceCIDR has the range",
            ));
        }
        if let Some((before, after)) = &self.work.kubeadm {
            let field = Field::config_map_entry("ClusterConfiguration");
            let edits = vec![FieldEdit::replace(field, text(before), text(after))];
            let change = KeyChange::Edit { require: Vec::new(), edits, fill: Vec::new() };
            let assumed = Some(swap(vec![KeyEdit { key: self.layout.kubeadm_config(), change }]));
            let external = External {
                what: format!("set `networking.serviceSubnet` of kubeadm-config to `{}`", self.work.to),
                why: "the next `kubeadm upgrade` would bring the old range back".into(),
                assumed,
                assumed_back: None,
            };
            steps.push(step("external", "kubeadm-config", Action::External(external)));
        }
        steps.push(external(
            "certificates-after",
            "reissue the API servers' certificates without the old first address; unlock the pipelines"
                .to_string(),
            "nothing dials the old address any more",
        ));
        steps
    }
}

/// A step on a shadow, which is about the Service that it stands in for.
fn shadow_step(candidate: &Move, name: &str, shadow: &str, action: Action) -> Step {
    let subject = format!("{}/{shadow}", candidate.namespace);
    Step { about: candidate.subject(), ..step(name, &subject, action) }
}

fn parts_of(shadow: &Shadow) -> [(&str, IpAddr); 2] {
    let [hold, warm] = shadow.temporary;
    [(&shadow.hold_name, hold), (&shadow.warm_name, warm)]
}

fn manifest(candidate: &Move, shadow: &Shadow, name: &str, address: IpAddr) -> serde_json::Value {
    let mut spec = shadow.spec.clone();
    if let Some(members) = spec.as_object_mut() {
        members.insert("clusterIP".into(), address.to_string().into());
        members.insert("clusterIPs".into(), serde_json::json!([address.to_string()]));
    }
    serde_json::json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name, "namespace": candidate.namespace, "uid": "", "creationTimestamp": "1970-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/managed-by": "netsurgeon"},
            "annotations": {"netsurgeon.io/stands-in-for": candidate.name},
        },
        "spec": spec,
    })
}

fn text(text: &str) -> Value {
    Value::Text(text.to_string())
}

fn one(address: IpAddr) -> Value {
    Value::Texts(vec![address.to_string()])
}

fn bytes(data: &[u8]) -> Value {
    Value::Bytes(data.to_vec())
}

fn inverse(edits: &[FieldEdit]) -> Vec<FieldEdit> {
    edits.iter().filter_map(FieldEdit::inverse).collect()
}

fn managed_by(who: &str) -> Condition {
    Condition::Holds(Field::label(MANAGED_BY), text(who))
}

fn fresh(ahead: i64) -> Vec<Fill> {
    vec![
        Fill { field: Field::uid(), with: Generated::FreshUid },
        Fill { field: Field::creation_timestamp(), with: Generated::Now { ahead } },
    ]
}

fn create(key: Key, value: Vec<u8>, ahead: i64) -> KeyEdit {
    KeyEdit { key, change: KeyChange::Create { value, fill: fresh(ahead) } }
}

/// Changes who manages an IPAddress; `ahead` dates it as made anew, that far ahead of now.
fn relabel(key: Key, from: &str, to: &str, ahead: Option<i64>) -> KeyEdit {
    let edits = vec![FieldEdit::replace(Field::label(MANAGED_BY), text(from), text(to))];
    let fill = ahead.map(fresh).unwrap_or_default();
    KeyEdit { key, change: KeyChange::Edit { require: Vec::new(), edits, fill } }
}

fn reparent(key: Key, from: &str, to: &str) -> KeyEdit {
    let edits = vec![FieldEdit::replace(Field::parent_name(), text(from), text(to))];
    KeyEdit { key, change: KeyChange::Edit { require: Vec::new(), edits, fill: fresh(0) } }
}

fn date_now(key: Key) -> KeyEdit {
    let fill = vec![Fill { field: Field::creation_timestamp(), with: Generated::Now { ahead: 0 } }];
    KeyEdit { key, change: KeyChange::Edit { require: Vec::new(), edits: Vec::new(), fill } }
}
