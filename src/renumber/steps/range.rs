//! The steps that are about the range as a whole: its ServiceCIDR or RangeAllocation, the API servers' flag,
//! and everything that others must do before and after.

use std::net::IpAddr;

use super::edits::{bytes, only_if, swap, text};
use super::{Compiler, step, word};
use crate::ip::{Item, Items, ServiceCidr, as_flag};
use crate::operation::{Action, ApiChange, External, KeyChange, KeyEdit, Step, StepId, Swap, Wait};
use crate::renumber::intention::Move;
use crate::store::Key;
use crate::survey::Era;
use crate::wire::bitmap::Bitmap;
use crate::wire::edit::{Condition, FieldChange};
use crate::wire::{Field, FieldEdit};

/// What netsurgeon does itself after the flag has changed, under dual write.
pub(in crate::renumber) const RESERVE_BITS: &str = "reserve-bits";
pub(in crate::renumber) const KEEP_BITS: &str = "keep-bits";
pub(in crate::renumber) const REWRITE_BITMAP: &str = "rewrite-bitmap";
/// What undoes that, once the flag has changed back. Nothing on the way forward.
pub(in crate::renumber) const RESTORE_BITMAP: &str = "restore-bitmap";
/// What it does itself after the flag has changed: no new Service gets an address of the old range any more.
pub(in crate::renumber) const CLOSE_RANGE: &str = "close-range";
/// What undoes that, once the flag has changed back. Nothing on the way forward.
pub(in crate::renumber) const REOPEN_RANGE: &str = "reopen-range";
/// What it does itself at the end: the API servers' own ServiceCIDR gets the new range.
pub(in crate::renumber) const REPLACE_RANGE: &str = "replace-range";

const NOTHING_FORWARD: &str = "nothing, on the way forward";
const NO_ADDRESS: &str =
    "under dual write nobody else does, and no address can be allocated until it is done";

/// What the owner of other ServiceCIDRs does after that.
pub(in crate::renumber) const OTHER_RANGES: &str = "other-ranges";

/// Whether an external step is a person's to do; the others netsurgeon does itself.
pub fn is_manual(name: &str) -> bool {
    !matches!(
        name,
        CLOSE_RANGE
            | REOPEN_RANGE
            | REPLACE_RANGE
            | RESERVE_BITS
            | KEEP_BITS
            | REWRITE_BITMAP
            | RESTORE_BITMAP
            | "temporary-range"
    )
}

fn external(name: &str, what: String, why: &str) -> Step {
    external_step(outside(name, what, why))
}

fn outside(name: &str, what: String, why: &str) -> External {
    External {
        name: name.to_string(),
        what,
        why: why.to_string(),
        undo: None,
        assumed: None,
        assumed_back: None,
    }
}

fn external_step(external: External) -> Step {
    step("external", &external.name.clone(), Action::External(external))
}

/// The step that reserves the bits of a batch.
pub(in crate::renumber) fn bits_step(batch: usize) -> StepId {
    StepId(format!("reserve/{batch:05}"))
}

impl Compiler<'_> {
    pub(in crate::renumber) fn prepare(&self) -> Vec<Step> {
        let mut steps = vec![external(
            "snapshot",
            "take a snapshot of etcd and verify it".to_string(),
            "it is the way back if everything else fails",
        )];
        steps.extend(self.work.kubernetes().map(|candidate| {
            let (old, new) = (candidate.old_address, candidate.new_address);
            external(
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
        let mut flags = outside("flags", set(&self.work.flag), why);
        flags.undo = Some(set(&self.work.flag_before));
        let rewrite = self.bitmap_rewrite();
        if let (Era::Bitmap, Some((forward, backward))) = (self.work.era, &rewrite) {
            flags.assumed = Some(forward.clone());
            flags.assumed_back = Some(backward.clone());
        }
        if self.work.era == Era::Bitmap {
            return vec![external_step(flags)];
        }
        let mut steps = vec![self.reopen_range()];
        let (forward, backward) = rewrite.unzip();
        steps.extend(backward.map(|backward| self.restore_bitmap(backward)));
        steps.push(external_step(flags));
        steps.extend(forward.map(|forward| self.rewrite_bitmap(forward)));
        steps.push(Self::close_range());
        steps.extend(self.other_ranges());
        steps
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
        let outside = outside(OTHER_RANGES, what, "new Services would still get addresses of it");
        Some(external_step(External { undo: Some(undo), ..outside }))
    }

    /// Under dual write: see [`REWRITE_BITMAP`].
    fn rewrite_bitmap(&self, forward: Swap) -> Step {
        let what = format!(
            "bring the RangeAllocation to `{}`, with the bits of the Services of that moment",
            self.work.to
        );
        let rewrite = External { assumed: Some(forward), ..outside(REWRITE_BITMAP, what, NO_ADDRESS) };
        self.on_the_bitmap(rewrite)
    }

    /// Comes before the flag, so that it is undone after it: until the flag has changed back, API servers allocate from the
    /// RangeAllocation of the new range.
    fn restore_bitmap(&self, backward: Swap) -> Step {
        let range = as_flag(&self.work.flag_before);
        let restore = External {
            undo: Some(format!("netsurgeon brings the RangeAllocation to `{range}` again")),
            assumed_back: Some(backward),
            ..outside(RESTORE_BITMAP, NOTHING_FORWARD.to_string(), NO_ADDRESS)
        };
        self.on_the_bitmap(restore)
    }

    fn on_the_bitmap(&self, external: External) -> Step {
        let subject = self.work.to.to_string().replace('/', "-");
        step(&external.name.clone(), &subject, Action::External(external))
    }

    fn close_range() -> Step {
        external(
            CLOSE_RANGE,
            "netsurgeon deletes ServiceCIDR `kubernetes`: it stays, terminating, until the old addresses are retired".to_string(),
            "new Services would still get addresses of the old range",
        )
    }

    /// Comes before the flag, so that it is undone after it: an API server with the new flag would give its own ServiceCIDR
    /// the new range.
    fn reopen_range(&self) -> Step {
        let range = as_flag(&self.work.flag_before);
        let undo = format!("netsurgeon waits until ServiceCIDR `kubernetes` has `{range}` again");
        let nothing = NOTHING_FORWARD.to_string();
        let outside = outside(REOPEN_RANGE, nothing, "new Services need addresses of the old range again");
        external_step(External { undo: Some(undo), ..outside })
    }

    pub(super) fn bitmap_rewrite(&self) -> Option<(Swap, Swap)> {
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

    /// Shadow Services can be made once the allocator takes addresses of the new range.
    pub(in crate::renumber) fn range_is_ready(&self) -> Step {
        let until = format!("ServiceCIDR `{}` is ready on every API server", self.work.range_name());
        let wait = Wait { name: word::RANGE_READY.into(), batch: None, subject: None, until };
        step("range-ready", &self.work.range_name(), Action::Wait(wait))
    }

    /// Sets the bits of a batch. Undone, they are cleared, but for those of addresses that other Services have by then: which
    /// these are is computed at that moment.
    pub(in crate::renumber) fn reserve_bits(&self, batch: usize, moves: &[Move]) -> Step {
        let bits: Vec<u64> = moves.iter().map(|candidate| self.bit(candidate.new_address)).collect();
        let what = "netsurgeon sets the bits of the addresses of a batch".to_string();
        let external = External {
            assumed: Some(swap(self.bits(bits.clone(), Vec::new()))),
            assumed_back: Some(swap(self.free_bits(bits))),
            ..outside(RESERVE_BITS, what, "API servers would allocate them to other Services")
        };
        Step { id: bits_step(batch), about: String::new(), action: Action::External(external), apart: false }
    }

    /// Where allocations are bits: those of a batch are seen to be its own just before its flips. An API server frees a bit
    /// without a Service when it has seen it three times, after 6 minutes at the earliest (`runOnce`,
    /// `pkg/registry/core/service/ipallocator/controller/repair.go`, v1.32.2), and the waits before may take longer.
    pub(in crate::renumber) fn keep_bits(&self, batch: usize, moves: &[Move]) -> Step {
        let bits: Vec<u64> = moves.iter().map(|candidate| self.bit(candidate.new_address)).collect();
        let external = External {
            assumed: Some(swap(self.bits(bits, Vec::new()))),
            ..outside(
                KEEP_BITS,
                "netsurgeon sets the bits again that an API server has freed".to_string(),
                "an address that another Service has by then must not be given to a second one",
            )
        };
        step(KEEP_BITS, &format!("{batch:05}"), Action::External(external))
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
            steps.push(external("node-local-dns", what, why));
        }
        if !dns.is_empty() {
            let what = format!(
                "tell the kubelets the new address of the cluster's DNS (`clusterDNS`): on each node {}, then restart the kubelet",
                pairs("`netsurgeon controlplane set-dns --from OLD --to NEW`")
            );
            steps.push(external(
                "cluster-dns",
                what,
                "a new Pod would be told an address that stops answering",
            ));
        }
        let soak = external(
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
            steps.push(external(
                REPLACE_RANGE,
                "ServiceCIDR `kubernetes` ends once no address needs it, and an API server creates it again from its flag"
                    .to_string(),
                "the API servers' own ServiceCIDR must have the new range",
            ));
            steps.push(external(
                "temporary-range",
                format!(
                    "`renumber retire` deletes ServiceCIDR `{}` once `kubernetes` has the new range",
                    self.work.range_name()
                ),
                "it was only needed until the API servers' own ServiceCIDR has the range",
            ));
        }
        steps.push(external(
            "certificates-after",
            "reissue the API servers' certificates without the old first address (`netsurgeon certs reissue --drop-old`); unlock the \
             deploy pipelines"
                .to_string(),
            "nothing dials the old address any more",
        ));
        steps
    }
}
