//! The steps that are about the range as a whole: its ServiceCIDR or RangeAllocation, the API servers' flag,
//! and everything that others must do before and after.

use std::net::IpAddr;

use super::edits::{bytes, only_if, swap, text};
use super::{Action, Compiler, Step, Wait, step};
use crate::ip::{Item, Items, ServiceCidr, as_flag};
use crate::operation::{KeyChange, KeyEdit, Manual, StepId, Swap};
use crate::renumber::effect::{Awaited, Effect};
use crate::store::Key;
use crate::survey::Era;
use crate::wire::bitmap::Bitmap;
use crate::wire::edit::{Condition, FieldChange};
use crate::wire::{Field, FieldEdit};

/// The manual step by which the API servers get another range.
pub(in crate::renumber) const FLAGS: &str = "flags";
/// What the owner of other ServiceCIDRs does after that.
pub(in crate::renumber) const OTHER_RANGES: &str = "other-ranges";

fn manual(name: &str, what: String, why: &str) -> Step {
    manual_step(Manual { name: name.to_string(), what, why: why.to_string(), undo: None })
}

fn manual_step(manual: Manual) -> Step {
    step("manual", &manual.name.clone(), Action::Manual(manual))
}

/// The step that reserves the bits of a batch.
pub(in crate::renumber) fn bits_step(batch: usize) -> StepId {
    StepId(format!("reserve/{batch:05}"))
}

impl Compiler<'_> {
    pub(in crate::renumber) fn prepare(&self) -> Vec<Step> {
        let mut steps = vec![manual(
            "snapshot",
            "take a snapshot of etcd and verify it".to_string(),
            "it is the way back if everything else fails",
        )];
        steps.extend(self.work.kubernetes().map(|candidate| {
            let (old, new) = (candidate.old_address, candidate.new_address);
            manual(
                "certificates",
                format!(
                    "every API server serves a certificate that carries `{new}` beside `{old}`: on each control-plane host \
                     `netsurgeon certs reissue --for-cidr {}`",
                    self.work.to
                ),
                "in-cluster clients verify the API server by the address of `default/kubernetes`",
            )
        }));
        steps
    }

    /// The API servers' flag; in the bitmap era it comes first, and the API servers then rewrite the bitmap
    /// themselves. Under dual write nobody does, so a step of ours follows.
    pub(in crate::renumber) fn flags(&self) -> Vec<Step> {
        let set = |flag: &[ServiceCidr]| {
            let flag = as_flag(flag);
            format!(
                "set `--service-cluster-ip-range` to `{flag}` on every API server, and on controller managers that \
                 have it: on one control-plane host after the other `netsurgeon controlplane set-range --to {flag}`"
            )
        };
        let again =
            format!("an API server with `{}` would create that range again", as_flag(&self.work.flag_before));
        let why = match self.work.era {
            Era::Bitmap => {
                "with different flags API servers overwrite each other's RangeAllocation; freeze Service \
                            creation until all agree"
            }
            _ => again.as_str(),
        };
        let flags = manual_step(Manual {
            name: FLAGS.to_string(),
            what: set(&self.work.flag),
            why: why.to_string(),
            undo: Some(set(&self.work.flag_before)),
        });
        if self.work.era == Era::Bitmap {
            return vec![flags];
        }
        // What comes before the flag is undone after it. Until the flag has changed back, API servers allocate from the
        // RangeAllocation of the new range, and would give their own ServiceCIDR the new range.
        let back =
            |name: &str, effect| Step { back_of: vec![flags.id.clone()], ..self.on_range(name, effect) };
        let mut steps = vec![back("reopen-range", Effect::ReopenRange)];
        let has_bitmap = self.work.bitmap.is_some();
        steps.extend(has_bitmap.then(|| back("restore-bitmap", Effect::RestoreBitmap)));
        steps.push(flags);
        steps.extend(has_bitmap.then(|| self.on_range("rewrite-bitmap", Effect::RewriteBitmap)));
        steps.push(self.on_range("close-range", Effect::CloseRange));
        steps.extend(self.other_ranges());
        steps
    }

    fn on_range(&self, name: &str, effect: Effect) -> Step {
        step(name, &self.work.to.to_string().replace('/', "-"), Action::Do(effect))
    }

    /// The ServiceCIDRs that somebody has created: new Services would go on getting addresses of them.
    fn other_ranges(&self) -> Option<Step> {
        let others = &self.work.others;
        if others.is_empty() {
            return None;
        }
        let names: Vec<&str> = others.iter().map(|other| other.name.as_str()).collect();
        let ranges: Vec<String> =
            others.iter().flat_map(|other| &other.ranges).map(ToString::to_string).collect();
        let what = format!(
            "delete what else gives out old addresses: `kubectl delete servicecidr --wait=false {}`; it stays, terminating, until \
             the old addresses are retired",
            names.join(" ")
        );
        let undo = format!(
            "create ServiceCIDRs with `{}` again, by other names while those of before are being deleted",
            ranges.join("`, `")
        );
        let why = "new Services would still get addresses of it".to_string();
        Some(manual_step(Manual { name: OTHER_RANGES.to_string(), what, why, undo: Some(undo) }))
    }

    /// The change of the RangeAllocation to the new range, and back to the old one, as planned.
    pub(in crate::renumber) fn bitmap_rewrite(&self) -> Option<(Swap, Swap)> {
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
    pub(super) fn all_bits(&self, there: &[u8]) -> Vec<u8> {
        let mut bits = Bitmap::from_bytes(there, self.bitmap_capacity())
            .unwrap_or_else(|_| Bitmap::empty(self.bitmap_capacity()));
        for candidate in self.work.planned() {
            bits.set(self.bit(candidate.new_address), true);
        }
        bits.to_bytes()
    }

    pub(in crate::renumber) fn bitmap_capacity(&self) -> u64 {
        Items::Addresses(self.work.to).capacity()
    }

    pub(in crate::renumber) fn bit(&self, address: IpAddr) -> u64 {
        Items::Addresses(self.work.to).bit(Item::Address(address)).unwrap_or(u64::MAX)
    }

    /// Makes the ServiceCIDR of the new range; on a dual-stack cluster with the other family's range beside
    /// it, without which ServiceCIDR `kubernetes` could not go (`servicecidrs_controller.go`, v1.36.3).
    pub(in crate::renumber) fn open_range(&self) -> Step {
        let name = self.work.range_name();
        let manifest = serde_json::json!({
            "apiVersion": self.work.api_version, "kind": "ServiceCIDR",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "netsurgeon"}},
            "spec": {"cidrs": self.work.flag},
        });
        step("open-range", &name, Action::Do(Effect::Create { manifest }))
    }

    /// Shadow Services can be made once the allocator takes addresses of the new range.
    pub(in crate::renumber) fn range_is_ready(&self) -> Step {
        let until = format!("ServiceCIDR `{}` is ready on every API server", self.work.range_name());
        let wait = Wait { kind: Awaited::RangeReady, batch: None, subject: None, until };
        step("range-ready", &self.work.range_name(), Action::Wait(wait))
    }

    /// Sets the bits of a batch.
    pub(in crate::renumber) fn reserve_bits(batch: usize) -> Step {
        let effect = Effect::ReserveBits { batch };
        Step { id: bits_step(batch), ..step("", "", Action::Do(effect)) }
    }

    /// Where allocations are bits: those of a batch are seen to be its own just before its flips. An API server frees a bit
    /// without a Service when it has seen it three times, after 6 minutes at the earliest (`runOnce`,
    /// `pkg/registry/core/service/ipallocator/controller/repair.go`, v1.32.2), and the waits before may take longer.
    pub(in crate::renumber) fn keep_bits(batch: usize) -> Step {
        step("keep-bits", &format!("{batch:05}"), Action::Do(Effect::KeepBits { batch }))
    }

    /// Sets the bits of a batch, or frees them.
    pub(in crate::renumber) fn bits_of(&self, batch: usize, back: bool) -> Swap {
        let bits = self.work.batch(batch).iter().map(|candidate| self.bit(candidate.new_address)).collect();
        swap(if back { self.free_bits(bits) } else { self.bits(bits, Vec::new()) })
    }

    pub(super) fn range_key(&self) -> Key {
        let name = self.work.bitmap.as_ref().map_or("serviceips", |change| change.name.as_str());
        self.layout.range(name)
    }

    pub(in crate::renumber) fn bits(&self, set: Vec<u64>, clear: Vec<u64>) -> Vec<KeyEdit> {
        self.on_bitmap(FieldChange::Bits { capacity: self.bitmap_capacity(), set, clear })
    }

    /// Frees the bit of a temporary address, which may be free: an API server that is left alone while it makes a Service takes
    /// that for failed, and gives the address back (`beginCreate`, `pkg/registry/core/service/storage/storage.go`, v1.32.2), when
    /// etcd may have the Service by then.
    pub(in crate::renumber) fn free_bit(&self, temporary: IpAddr) -> Vec<KeyEdit> {
        self.free_bits(vec![self.bit(temporary)])
    }

    fn free_bits(&self, bits: Vec<u64>) -> Vec<KeyEdit> {
        self.on_bitmap(FieldChange::Free { capacity: self.bitmap_capacity(), bits })
    }

    /// Frees the bit of an old address, if the RangeAllocation has its range: on the way back it has that again before every
    /// Service has.
    pub(in crate::renumber) fn free_old_bit(&self, address: IpAddr) -> Option<KeyEdit> {
        let from = &self.work.bitmap.as_ref()?.from;
        let items = Items::parse(from)?;
        let change =
            FieldChange::Free { capacity: items.capacity(), bits: vec![items.bit(Item::Address(address))?] };
        let edits = vec![FieldEdit { field: Field::data(), change }];
        let change = KeyChange::Edit { require: Vec::new(), edits, fill: Vec::new() };
        let holds = vec![Condition::Holds(Field::range(), text(from))];
        Some(only_if(holds, KeyEdit { key: self.range_key(), change }))
    }

    /// Under dual write: the same, if the RangeAllocation has the new range by then.
    pub(in crate::renumber) fn if_of_the_new_range(
        &self,
        edits: Vec<KeyEdit>,
    ) -> impl Iterator<Item = KeyEdit> {
        let holds = vec![Condition::Holds(Field::range(), text(&self.work.to.to_string()))];
        edits.into_iter().map(move |edit| only_if(holds.clone(), edit))
    }

    fn on_bitmap(&self, change: FieldChange) -> Vec<KeyEdit> {
        let edits = vec![FieldEdit { field: Field::data(), change }];
        let require = vec![Condition::Holds(Field::range(), text(&self.work.to.to_string()))];
        vec![KeyEdit { key: self.range_key(), change: KeyChange::Edit { require, edits, fill: Vec::new() } }]
    }

    /// What must happen while the old addresses are held.
    pub(in crate::renumber) fn close(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let dns: Vec<_> = self.work.dns().map(|dns| (dns.old_address, dns.new_address)).collect();
        let pairs = |words: &str| {
            let pairs = dns
                .iter()
                .map(|(old, new)| words.replace("OLD", &old.to_string()).replace("NEW", &new.to_string()));
            pairs.collect::<Vec<_>>().join(", ")
        };
        if self.work.node_local_dns {
            let what = format!(
                "NodeLocal DNSCache: where `-localip` of DaemonSet `kube-system/node-local-dns`, or `bind` in the Corefile of its \
                 ConfigMap, has an old address of the cluster's DNS, put the new one in its place ({}); then `kubectl -n kube-system \
                 rollout restart daemonset/node-local-dns`",
                pairs("`NEW` for `OLD`")
            );
            let why = "its Pods ask the DNS at an address that they have from their environment";
            steps.push(manual("node-local-dns", what, why));
        }
        if !dns.is_empty() {
            let what = format!(
                "tell the kubelets the new address of the cluster's DNS (`clusterDNS`): on each node {}, then restart the kubelet",
                pairs("`netsurgeon controlplane set-dns --from OLD --to NEW`")
            );
            steps.push(manual(
                "cluster-dns",
                what,
                "a new Pod would be told an address that stops answering",
            ));
        }
        let soak = manual(
            "soak",
            "restart what still has an old address: Pods with an old `resolv.conf` or environment, CNI kubeconfigs \
             on hosts; wait until nothing uses an old address"
                .to_string(),
            "an old address stops answering when it is retired",
        );
        steps.push(soak);
        steps
    }

    pub(in crate::renumber) fn finish(&self) -> Vec<Step> {
        let mut steps = self.overlaps_end();
        if self.work.era != Era::Bitmap {
            steps.push(self.on_range("replace-range", Effect::ReplaceRange));
            steps.push(self.on_range("temporary-range", Effect::RemoveTemporaryRange));
        }
        steps.push(manual(
            "certificates-after",
            "reissue the API servers' certificates without the old first address (`netsurgeon certs reissue --drop-old`); unlock the \
             deploy pipelines"
                .to_string(),
            "nothing dials the old address any more",
        ));
        steps
    }
}
