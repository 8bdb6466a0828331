//! The steps for the whole range: its ServiceCIDR or RangeAllocation, the API servers' flag, and the manual steps before and
//! after the moves.

use std::net::IpAddr;

use super::edits::{bytes, only_if, swap, text};
use super::{Action, Compiler, Step, Wait, step};
use crate::ip::{Item, Items, ServiceCidr, as_flag};
use crate::operation::{KeyChange, KeyEdit, Manual, StepId, Swap};
use crate::renumber::effect::{Awaited, Effect};
use crate::renumber::intention::BitmapChange;
use crate::store::Key;
use crate::survey::Era;
use crate::wire::bitmap::Bitmap;
use crate::wire::edit::{Condition, FieldChange};
use crate::wire::{Field, FieldEdit};

/// Name of the manual step that changes the range of the API servers.
pub(in crate::renumber) const FLAGS: &str = "flags";
/// Name of the manual step in which users delete their ServiceCIDRs with old ranges. This step comes after `flags`.
pub(in crate::renumber) const OTHER_RANGES: &str = "other-ranges";

fn manual(name: &str, what: String, why: &str) -> Step {
    manual_step(Manual { name: name.to_string(), what, why: why.to_string(), undo: None })
}

fn manual_step(manual: Manual) -> Step {
    step("manual", &manual.name.clone(), Action::Manual(manual))
}

/// Returns the id of the step that reserves the bits of a batch.
pub(in crate::renumber) fn bits_step(batch: usize) -> StepId {
    StepId(format!("reserve/{batch:05}"))
}

impl Compiler<'_> {
    pub(in crate::renumber) fn prepare(&self) -> Vec<Step> {
        let mut steps = vec![manual(
            "snapshot",
            "take a snapshot of etcd and verify it".to_string(),
            "the snapshot is the last resort if a rollback fails",
        )];
        steps.extend(self.work.kubernetes().map(|candidate| {
            let (old, new) = (candidate.old_address, candidate.new_address);
            manual(
                "certificates",
                format!(
                    "give every API server a certificate that covers both `{new}` and `{old}`: on each control-plane host \
                     `netsurgeon certs reissue --for-cidr {}`",
                    self.work.to
                ),
                "clients in the cluster connect to the address of `default/kubernetes`, so the certificate must cover this address",
            )
        }));
        // A rollback runs this step last, whenever the operation has started.
        if self.work.era == Era::DualWrite && self.work.is_overlapping() {
            let begun = steps.iter().take(1).map(|snapshot| snapshot.id.clone());
            steps.push(Self::aligned_back("start", begun.collect()));
        }
        steps
    }

    /// Returns the steps that change the API servers' flag. In the bitmap era, the flag is the first change, and the API servers
    /// then rewrite the bitmap. Under dual write, the API servers do not rewrite the bitmap, so a step of netsurgeon rewrites it
    /// after the flag has changed.
    pub(in crate::renumber) fn flags(&self) -> Vec<Step> {
        let set = |flag: &[ServiceCidr]| {
            let flag = as_flag(flag);
            format!(
                "set `--service-cluster-ip-range` to `{flag}` on every API server, and on controller managers that \
                 have it: on one control-plane host at a time `netsurgeon controlplane set-range --to {flag}`"
            )
        };
        let again = format!(
            "an API server that still has `{}` in its flag would create the ServiceCIDR of the old range again",
            as_flag(&self.work.flag_before)
        );
        let why = match self.work.era {
            Era::Bitmap => {
                "if their flags differ, API servers overwrite each other's RangeAllocation; do not create Services until all flags agree"
            }
            _ => again.as_str(),
        };
        let flags = manual_step(Manual {
            name: FLAGS.to_string(),
            what: set(&self.work.flag),
            why: why.to_string(),
            undo: Some(set(&self.work.flag_before)),
        });
        if self.work.flag == self.work.flag_before {
            return self.other_ranges().into_iter().collect();
        }
        if self.work.era == Era::Bitmap {
            return vec![flags];
        }
        // A rollback runs these steps in reverse order. So it changes the flag back before it runs the steps that precede the
        // flag in this list. Until the flag has changed back, API servers allocate from the RangeAllocation of the new range, and
        // would give their own ServiceCIDR the new range.
        let back =
            |name: &str, effect| Step { back_of: vec![flags.id.clone()], ..self.on_range(name, effect) };
        let mut steps = vec![back("reopen-range", Effect::ReopenRange)];
        let has_bitmap = self.work.bitmap.is_some();
        steps.extend(has_bitmap.then(|| back("restore-bitmap", Effect::RestoreBitmap)));
        steps.push(flags);
        steps.extend(has_bitmap.then(|| self.on_range("rewrite-bitmap", Effect::RewriteBitmap)));
        // API servers with different flags do not set bits of the addresses that they allocate.
        steps.extend(self.aligned("flags").filter(|_| has_bitmap));
        steps.push(self.on_range("close-range", Effect::CloseRange));
        steps.extend(self.other_ranges());
        steps
    }

    fn on_range(&self, name: &str, effect: Effect) -> Step {
        step(name, &self.work.to.to_string().replace('/', "-"), Action::Do(effect))
    }

    /// Returns the manual step that deletes the ServiceCIDRs that users created. Without this step, new Services would still get
    /// addresses of these ServiceCIDRs.
    fn other_ranges(&self) -> Option<Step> {
        let others = &self.work.others;
        if others.is_empty() {
            return None;
        }
        let names: Vec<&str> = others.iter().map(|other| other.name.as_str()).collect();
        let texts = |ranges: Vec<&ServiceCidr>| {
            ranges.iter().map(|range| format!("`{range}`")).collect::<Vec<_>>().join(", ")
        };
        let kept: Vec<&ServiceCidr> = others.iter().flat_map(|other| &other.kept).collect();
        let first = if kept.is_empty() {
            String::new()
        } else {
            format!("first create ServiceCIDRs with {}, which Services keep; then ", texts(kept.clone()))
        };
        let all = others.iter().flat_map(|other| &other.ranges).chain(kept).collect();
        let what = format!(
            "{first}delete the other ServiceCIDRs with old addresses: `kubectl delete servicecidr --wait=false {}`; a ServiceCIDR \
             stays terminating while a Service has, or holds, an address that no other ServiceCIDR has",
            names.join(" ")
        );
        let undo = format!(
            "create ServiceCIDRs with {} again; use other names while the deleted ones still exist",
            texts(all)
        );
        let why = "new Services would still get addresses of these ServiceCIDRs".to_string();
        Some(manual_step(Manual { name: OTHER_RANGES.to_string(), what, why, undo: Some(undo) }))
    }

    /// Returns the planned changes of the RangeAllocation: to the new range, and back to the old range.
    pub(in crate::renumber) fn bitmap_rewrite(&self) -> Option<(Swap, Swap)> {
        let change = self.work.bitmap.as_ref()?;
        let after = match self.work.era {
            Era::Bitmap => change.data_after.clone(),
            _ => self.all_bits(&change.data_after),
        };
        let key = self.layout.range(&change.name);
        let edits = vec![
            FieldEdit::replace(Field::range(), text(&change.from), text(&self.work.to.to_string())),
            FieldEdit::replace(Field::data(), bytes(&self.old_bits(change)), bytes(&after)),
        ];
        // Only a rehearsal uses these changes. The bits of a Service that was deleted meanwhile are already free.
        let old = FieldChange::Set(bytes(&self.old_bits(change)));
        let range = edits.iter().take(1).filter_map(FieldEdit::inverse);
        let back = range.chain([FieldEdit { field: Field::data(), change: old }]).collect();
        let edit = |edits| KeyEdit {
            key: key.clone(),
            change: KeyChange::Edit { require: Vec::new(), edits, fill: Vec::new() },
        };
        Some((swap(vec![edit(edits)]), swap(vec![edit(back)])))
    }

    /// Returns the bits of the old range before the RangeAllocation is rewritten. Under dual write, these are also the bits of the new
    /// addresses that the old range has.
    fn old_bits(&self, change: &BitmapChange) -> Vec<u8> {
        let news = self.work.planned().iter().filter_map(|candidate| self.old_bit(candidate.new_address));
        let mut news = news.map(|(_, items, bit)| (items.capacity(), bit)).peekable();
        let Some((capacity, _)) = news.peek().copied() else { return change.data_before.clone() };
        let Ok(mut bits) = Bitmap::from_bytes(&change.data_before, capacity) else {
            return change.data_before.clone();
        };
        news.for_each(|(_, bit)| {
            bits.set(bit, true);
        });
        bits.to_bytes()
    }

    /// Returns the bits of the new range after all planned Services have moved.
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

    /// Creates the ServiceCIDR of the new range. On a dual-stack cluster, this ServiceCIDR also contains the other family's
    /// range. Without that range, the deletion of ServiceCIDR `kubernetes` could not complete (`servicecidrs_controller.go`,
    /// v1.36.3).
    pub(in crate::renumber) fn open_range(&self) -> Step {
        let name = self.work.range_name();
        let manifest = serde_json::json!({
            "apiVersion": self.work.api_version, "kind": "ServiceCIDR",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "netsurgeon"}},
            "spec": {"cidrs": self.work.flag},
        });
        step("open-range", &name, Action::Do(Effect::Create { manifest }))
    }

    /// Waits until the allocator accepts addresses of the new range. Only then can shadow Services be created.
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

    /// In the bitmap era: sets freed bits of a batch again, immediately before the flips of the batch. An API server frees a bit
    /// without a Service in the third round of its repair loop, after 6 minutes at the earliest (`runOnce`,
    /// `pkg/registry/core/service/ipallocator/controller/repair.go`, v1.32.2). The waits before the flips can take longer.
    pub(in crate::renumber) fn keep_bits(batch: usize) -> Step {
        step("keep-bits", &format!("{batch:05}"), Action::Do(Effect::KeepBits { batch }))
    }

    /// Sets the bits of a batch or, with `back`, frees them.
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

    /// Frees the bit of a temporary address. The bit may already be free: an API server that gets no response from etcd while it
    /// creates a Service treats the creation as failed, and releases the address (`beginCreate`,
    /// `pkg/registry/core/service/storage/storage.go`, v1.32.2). But etcd may have stored the Service.
    pub(in crate::renumber) fn free_bit(&self, temporary: IpAddr) -> Vec<KeyEdit> {
        self.free_bits(vec![self.bit(temporary)])
    }

    fn free_bits(&self, bits: Vec<u64>) -> Vec<KeyEdit> {
        self.on_bitmap(FieldChange::Free { capacity: self.bitmap_capacity(), bits })
    }

    /// Under dual write, frees the bits of addresses in the range that the RangeAllocation has when the step runs. Before the flag
    /// changes, this is the old range, and afterwards the new range. Addresses that this range does not have are ignored.
    pub(in crate::renumber) fn free_bits_now(&self, addresses: &[IpAddr]) -> Vec<KeyEdit> {
        let Some(bitmap) = self.work.bitmap.as_ref().filter(|_| self.work.era == Era::DualWrite) else {
            return Vec::new();
        };
        let to = self.work.to.to_string();
        let ranges = [Some(&bitmap.from).filter(|from| **from != to), Some(&to)];
        let edit = |range: &String| {
            let items = Items::parse(range)?;
            let bits: Vec<u64> =
                addresses.iter().filter_map(|address| items.bit(Item::Address(*address))).collect();
            let change = (!bits.is_empty()).then(|| FieldChange::Free { capacity: items.capacity(), bits });
            change.map(|change| self.on_bitmap_of(range, change))
        };
        ranges.into_iter().flatten().filter_map(edit).collect()
    }

    /// Changes the RangeAllocation, if it has this range when the step runs.
    fn on_bitmap_of(&self, range: &str, change: FieldChange) -> KeyEdit {
        let edits = vec![FieldEdit { field: Field::data(), change }];
        let change = KeyChange::Edit { require: Vec::new(), edits, fill: Vec::new() };
        only_if(
            vec![Condition::Holds(Field::range(), text(range))],
            KeyEdit { key: self.range_key(), change },
        )
    }

    /// Returns the range and the bit of an address in the RangeAllocation before the operation; `None` if the old range does not
    /// have the address, and if there is no dual write.
    fn old_bit(&self, address: IpAddr) -> Option<(&str, Items, u64)> {
        let from = &self.work.bitmap.as_ref().filter(|_| self.work.era == Era::DualWrite)?.from;
        let items = Items::parse(from)?;
        let bit = items.bit(Item::Address(address))?;
        Some((from, items, bit))
    }

    /// Sets the bit of a new address that the old range also has, while the RangeAllocation has the old range. A bit without an
    /// IPAddress may be set already: an API server that fails to create an IPAddress leaves it. Only the IPAddress decides which Service
    /// gets the address.
    pub(super) fn set_old_bit(&self, address: IpAddr) -> Option<KeyEdit> {
        let (from, items, bit) = self.old_bit(address)?;
        Some(self.on_bitmap_of(from, FieldChange::Mark { capacity: items.capacity(), bits: vec![bit] }))
    }

    /// Sets the bit of a new address, if the RangeAllocation has the new range when the step runs.
    pub(in crate::renumber) fn set_bit_if_new(&self, address: IpAddr) -> KeyEdit {
        let (capacity, bits) = (self.bitmap_capacity(), vec![self.bit(address)]);
        self.on_bitmap_of(&self.work.to.to_string(), FieldChange::Mark { capacity, bits })
    }

    /// Aligns the bits of the operation's addresses, if the ranges share addresses and there is a bitmap.
    fn aligned(&self, when: &str) -> Option<Step> {
        let is_needed = self.work.bitmap.is_some() && self.work.is_overlapping();
        is_needed.then(|| step("align-bits", when, Action::Do(Effect::AlignBits)))
    }

    /// Aligns the bits of the operation's addresses in a rollback, if one of these steps was executed.
    pub(super) fn aligned_back(when: &str, back_of: Vec<StepId>) -> Step {
        Step { back_of, ..step("align-bits-back", when, Action::Do(Effect::AlignBits)) }
    }

    /// Sets the free bit of an address, if the RangeAllocation has the new range when the step runs. Fails if the bit is set.
    pub(in crate::renumber) fn take_bit(&self, address: IpAddr) -> KeyEdit {
        let (capacity, set) = (self.bitmap_capacity(), vec![self.bit(address)]);
        self.on_bitmap_of(&self.work.to.to_string(), FieldChange::Bits { capacity, set, clear: Vec::new() })
    }

    /// Frees the bit of an address, if the RangeAllocation has the new range when the step runs.
    pub(in crate::renumber) fn free_bit_if_new(&self, address: IpAddr) -> KeyEdit {
        let change = FieldChange::Free { capacity: self.bitmap_capacity(), bits: vec![self.bit(address)] };
        self.on_bitmap_of(&self.work.to.to_string(), change)
    }

    fn on_bitmap(&self, change: FieldChange) -> Vec<KeyEdit> {
        let edits = vec![FieldEdit { field: Field::data(), change }];
        let require = vec![Condition::Holds(Field::range(), text(&self.work.to.to_string()))];
        vec![KeyEdit { key: self.range_key(), change: KeyChange::Edit { require, edits, fill: Vec::new() } }]
    }

    /// Returns the manual steps that are done while the old addresses are held.
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
                "NodeLocal DNSCache: if `-localip` of DaemonSet `kube-system/node-local-dns`, or `bind` in the Corefile of its \
                 ConfigMap, has an old address of the cluster's DNS, replace it with the new one ({}); then `kubectl -n kube-system \
                 rollout restart daemonset/node-local-dns`",
                pairs("`NEW` for `OLD`")
            );
            let why = "its Pods get the address of the cluster's DNS from their environment variables";
            steps.push(manual("node-local-dns", what, why));
        }
        if !dns.is_empty() {
            let what = format!(
                "on each node, run {} and restart the kubelet, so that new Pods get the new address of the cluster's DNS \
                 (`clusterDNS`)",
                pairs("`netsurgeon controlplane set-dns --from OLD --to NEW`")
            );
            steps.push(manual(
                "cluster-dns",
                what,
                "without this step, new Pods would get the old DNS address, which stops answering",
            ));
        }
        let soak = || {
            manual(
            "soak",
            "restart Pods that have an old address in `resolv.conf` or in their environment variables; update CNI kubeconfigs on \
             hosts; wait until no client uses an old address"
                .to_string(),
            "an old address stops answering when it is retired",
        )
        };
        steps.extend((!self.work.moves.is_empty()).then(soak));
        steps
    }

    pub(in crate::renumber) fn finish(&self) -> Vec<Step> {
        let mut steps = self.overlaps_end();
        if self.work.era != Era::Bitmap {
            steps.push(self.on_range("replace-range", Effect::ReplaceRange));
            steps.push(self.on_range("temporary-range", Effect::RemoveTemporaryRange));
        }
        steps.extend(self.aligned("end"));
        // If `default/kubernetes` keeps its address, the certificates keep their names.
        if self.work.kubernetes().is_none() {
            return steps;
        }
        // The certificates of the API servers contain the first address of each range in the flag.
        let old = self.work.flag_before.iter().filter(|range| !self.work.flag.contains(range));
        let old = old.fold(String::new(), |all, range| format!("{all} --drop-old {range}"));
        steps.push(manual(
            "certificates-after",
            format!(
                "on each control-plane host, run `netsurgeon certs reissue{old}`; then remove the deploy lock, if it is set: \
                 `netsurgeon unlock`"
            ),
            "no client connects to the old address any more",
        ));
        steps
    }
}
