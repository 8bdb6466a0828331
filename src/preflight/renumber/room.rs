//! `room`: whether etcd has space for the planned writes, and whether this host can track more connections.

use super::Renumber;
use crate::host::conntrack;
use crate::preflight::etcd_status::{DEFAULT_QUOTA, FULL, MEBIBYTE, statuses};
use crate::preflight::{Check, Judged, Read, Source, Verdict};
use crate::renumber::hold::Hold;
use crate::store::etcd::Member;
use crate::survey::Era;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "room",
    why: "a full etcd rejects writes, and a host with a full conntrack table drops new connections",
    needs: &[Source::Etcd],
    judge: |input| Box::pin(read(input)),
};

/// Growth of etcd in bytes for each moved Service, by the kind of hold, until etcd is compacted and defragmented. A test with 426
/// Services, etcd 3.6.16 and API servers 1.36.3 measured the growth between a defragmentation and the end of `retire`: 10 KiB for
/// each Service with an external IP, and 30 KiB for each Service with a shadow.
const AN_EXTERNAL_IP: u64 = 12 * 1024;
const A_SHADOW: u64 = 34 * 1024;
/// Number of writes of the allocation bitmap for each shadow and each batch. API servers write the bitmap for the two temporary
/// Services, and netsurgeon writes it to free the addresses of these Services. With API servers 1.32.2 and a bitmap of 8 KiB, the
/// measured growth was 72 KiB in total for each Service with a shadow.
const BITMAPS: u64 = 4;
/// Overhead of a stored value in bytes, for its last page and its key.
const A_PAGE: u64 = 4096;

async fn read(input: &Renumber) -> Read<Judged> {
    let survey = input.survey().await?;
    let mut moves = match input.plan().await {
        Ok(plan) => {
            let moves = &plan.work.moves;
            let shadows = moves.iter().filter(|one| one.hold == Hold::Shadow).count();
            let batches = moves.len().div_ceil(plan.work.batch_size.max(1));
            Moves { external_ips: moves.len().saturating_sub(shadows), shadows, batches, bitmap: None }
        }
        Err(judged) if judged.verdict == Verdict::Pass => Moves::default(),
        Err(_) => Moves { shadows: survey.services.len(), ..Moves::default() },
    };
    if survey.era.era == Era::Bitmap {
        let ranges = survey.service_ranges().into_iter().chain([input.options.to]);
        let own = ranges.filter(|range| range.family() == input.options.to.family());
        let bits = own.map(|range| range.bitmap_capacity()).max().unwrap_or_default();
        moves.bitmap = u64::try_from(bits.div_ceil(8)).ok();
    }
    Ok(judge(input.read.members().await?, &moves, conntrack::taken()))
}

/// Number and size of the planned writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moves {
    /// Number of Services that are held by an external IP, or not held.
    pub external_ips: usize,
    /// Number of Services that are held by a shadow.
    pub shadows: usize,
    /// Number of batches.
    pub batches: usize,
    /// Length of the allocation bitmap in bytes. `None` if allocations are objects. Also `None` with dual write, because the
    /// measured growth is then 30 KiB for each shadow, too.
    pub bitmap: Option<u64>,
}

impl Moves {
    /// Returns the expected growth of etcd in bytes, until etcd is compacted and defragmented.
    pub fn bytes(&self) -> u64 {
        let times = |count: usize, bytes: u64| u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(bytes);
        let bitmap = self.bitmap.map_or(0, |length| length.saturating_add(A_PAGE).saturating_mul(BITMAPS));
        times(self.external_ips, AN_EXTERNAL_IP)
            .saturating_add(times(self.shadows, A_SHADOW))
            .saturating_add(times(self.shadows.saturating_add(self.batches), bitmap))
    }
}

/// Checks whether etcd stays below 80 % of its quota after the planned writes, and whether the connection tracking table of this
/// host has room. `tracked`: the number of tracked connections, and the maximum.
pub fn judge(members: &[Member], moves: &Moves, tracked: Option<(u64, u64)>) -> Judged {
    let Some(size) = statuses(members).map(|status| status.size).max() else {
        return Judged::unknown("no member reports its database size", "");
    };
    let of = statuses(members).filter_map(|status| status.quota).min().unwrap_or(DEFAULT_QUOTA);
    let more = moves.bytes();
    let percent = |part: u64, whole: u64| part.saturating_mul(100).checked_div(whole).unwrap_or(100);
    let mebibytes = more.div_ceil(MEBIBYTE);
    let then = percent(size.saturating_add(more), of);
    let mut seen = format!("the renumbering needs about {mebibytes} MiB, and fills etcd to {then} %");
    if then >= FULL {
        return Judged::fail(
            seen,
            "make room first: `etcdctl compact REVISION`, then `etcdctl defrag --cluster`; or raise `--quota-backend-bytes`",
        );
    }
    let Some((count, most)) = tracked.filter(|(_, most)| *most > 0) else { return Judged::pass(seen) };
    let full = percent(count, most);
    seen = format!("{seen}; this host's conntrack table is {full} % full");
    if full >= FULL {
        return Judged::warn(
            seen,
            "raise `net.netfilter.nf_conntrack_max`: a full table drops new connections, which looks like a fault of the renumbering",
        );
    }
    Judged::pass(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::etcd_status::testing::{down, member};

    #[test]
    fn planned_writes_must_fit_below_the_quota() {
        let with = |size: u64, moves: usize, tracked: Option<(u64, u64)>| {
            let mut found = member(1);
            let status = found.status.as_mut().unwrap();
            (status.size, status.quota) = (size * MEBIBYTE, Some(1024 * MEBIBYTE));
            judge(&[found], &Moves { shadows: moves, batches: 1, ..Moves::default() }, tracked)
        };
        assert_eq!(with(100, 1000, Some((100, 1000))).verdict, Verdict::Pass);
        assert_eq!(with(100, 30_000, None).verdict, Verdict::Fail, "some 1000 MiB more");
        assert_eq!(with(790, 2000, None).verdict, Verdict::Fail, "the planned writes exceed the limit");
        assert_eq!(with(100, 10, Some((900, 1000))).verdict, Verdict::Warn);
        assert_eq!(judge(&[down(1)], &Moves::default(), None).verdict, Verdict::Unknown);
    }

    #[test]
    fn bitmap_counts_for_every_shadow_and_every_batch() {
        let moves = Moves { external_ips: 100, shadows: 0, batches: 2, bitmap: None };
        assert_eq!(moves.bytes(), 100 * 12 * 1024);
        let shadows = Moves { external_ips: 0, shadows: 100, ..moves };
        assert_eq!(shadows.bytes(), 100 * 34 * 1024);
        let (small, large) = (Some(8 * 1024), Some(128 * 1024));
        assert_eq!(Moves { bitmap: small, ..moves }.bytes(), moves.bytes() + 2 * 4 * 12 * 1024);
        let with_bitmap = Moves { bitmap: large, ..shadows }.bytes();
        assert_eq!(with_bitmap, shadows.bytes() + 102 * 4 * 132 * 1024, "kubeadm's own range is a /12");
    }
}
