//! Compiles a renumbering to stages of steps, in the order that the cluster's storage era requires.
//!
//! If allocations are objects, each of the two addresses of a moving Service has an IPAddress object that refers to the Service.
//! Before the flip, both objects exist and their creation timestamps are in the future. Both stay in this state until the old
//! address is retired. The flip writes only the Service. So a rollback uses the same protocol, with the two addresses swapped. A
//! stage that is needed in only one direction does nothing in the other direction.
//!
//! A client that resolved a name just before its Service moved back uses the new address for a while. So in a rollback all
//! batches move back first. Then the operation *lingers* once: the new addresses still answer for some time. After that, the
//! operation removes the new addresses.

use std::ops::Range;

use super::effect::Effect;
use super::intention::{Move, Renumbering};
use super::plan::KIND;
use super::steps::{self, Compiler, Step};
use crate::ip::as_flag;
use crate::operation::{self, Stage, Work};
use crate::survey::{Era, Layout};
use crate::words::counted;

/// Version of the plan format, and of the steps to which a plan compiles.
pub(super) const VERSION: u32 = 6;

/// The kinds of stages. Some stages occur once, other stages occur once per batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Prepare,
    Flags,
    /// If allocations are objects, reserves all planned addresses together. In the bitmap era, and for a sweep, reserves the
    /// addresses of one batch.
    Reserve,
    OpenRange,
    Overlap,
    Shadows,
    Prewarm,
    Linger,
    /// Protects the IPAddress objects of a batch's old addresses from repair loops, if allocations are objects.
    Date,
    Barrier,
    Flip,
    Verify,
    Temporaries,
    Unwarm,
    Records,
    Close,
    NoReturn,
    Retire,
    Settle,
    Finish,
}

impl Part {
    const ALL: [Self; 20] = [
        Self::Prepare,
        Self::Flags,
        Self::Reserve,
        Self::OpenRange,
        Self::Overlap,
        Self::Shadows,
        Self::Prewarm,
        Self::Linger,
        Self::Date,
        Self::Barrier,
        Self::Flip,
        Self::Verify,
        Self::Temporaries,
        Self::Unwarm,
        Self::Records,
        Self::Close,
        Self::NoReturn,
        Self::Retire,
        Self::Settle,
        Self::Finish,
    ];

    /// Returns the name of the stages of this kind.
    fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Flags => "flags",
            Self::Reserve => "reserve",
            Self::OpenRange => "open-range",
            Self::Shadows => "shadows",
            Self::Prewarm => "prewarm",
            Self::Linger => "linger",
            Self::Date => "date",
            Self::Barrier => "barrier",
            Self::Flip => "flip",
            Self::Verify => "verify",
            Self::Settle => "settle",
            Self::Temporaries => "temporaries",
            Self::Unwarm => "unwarm",
            Self::Overlap => "overlap",
            Self::Records => "records",
            Self::Close => "close",
            Self::NoReturn => "no-return",
            Self::Retire => "retire",
            Self::Finish => "finish",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.name() == name)
    }
}

impl Renumbering {
    /// Returns the batches. The Services of a batch move together, and all of them have the same tier. The cluster's DNS and the
    /// API servers' own Service each have a batch of their own.
    pub fn batches(&self) -> Vec<Range<usize>> {
        (0..self.batch_count()).map(|batch| self.batch_range(batch)).collect()
    }

    /// Returns the planned moves, without the moves that sweeps added.
    pub(super) fn planned(&self) -> &[Move] {
        let count = self.moves.partition_point(|candidate| candidate.sweep == 0);
        self.moves.get(..count).unwrap_or_default()
    }

    /// Returns the number of planned moves that can share a batch. The Services that move alone are at the end of a plan.
    pub(super) fn shared(&self) -> usize {
        self.planned().partition_point(|candidate| !is_alone(candidate))
    }

    /// Returns the sections of the moves, each with its largest batch size. A section has the planned Services of one tier, the
    /// Services that move alone, or the Services of one sweep. No batch crosses the end of a section.
    fn sections(&self) -> impl Iterator<Item = (Range<usize>, usize)> {
        let (shared, planned, size) = (self.shared(), self.planned().len(), self.batch_size.max(1));
        let sweeps = (1..=self.sweeps()).map(move |sweep| {
            let start = self.moves.partition_point(|candidate| candidate.sweep < sweep);
            (start..self.moves.partition_point(|candidate| candidate.sweep <= sweep), size)
        });
        let tiers = self.tier_sections().map(move |section| (section, size));
        tiers.chain([(shared..planned, 1)]).chain(sweeps)
    }

    fn batch_count(&self) -> usize {
        self.sections().map(|(section, size)| section.len().div_ceil(size)).sum()
    }

    /// Returns the number of planned batches, without the batches of sweeps.
    fn planned_batch_count(&self) -> usize {
        let planned = self.tiers.len().saturating_add(2);
        self.sections().take(planned).map(|(section, size)| section.len().div_ceil(size)).sum()
    }

    /// Returns the range of a batch in the list of moves. The range is computed, so the time to compile a stage does not depend
    /// on the number of stages.
    fn batch_range(&self, batch: usize) -> Range<usize> {
        let mut left = batch;
        for (section, size) in self.sections() {
            let Some(beyond) = left.checked_sub(section.len().div_ceil(size)) else {
                let start = section.start.saturating_add(left.saturating_mul(size));
                return start..start.saturating_add(size).min(section.end);
            };
            left = beyond;
        }
        let end = self.moves.len();
        end..end
    }

    /// Returns the name of the ServiceCIDR that is created for the new range.
    pub(super) fn range_name(&self) -> String {
        let network = self.to.network().to_string().replace(['.', ':'], "-");
        format!("netsurgeon-{}-{}", network.trim_matches('-').replace("--", "-"), self.to.prefix_len())
    }

    /// Returns the name of the ServiceCIDR that serves the old range during a rollback, until the API servers' own ServiceCIDR
    /// has the old range again.
    pub(super) fn back_range_name(&self) -> String {
        format!("{}-back", self.range_name())
    }

    /// Returns the moves of a batch; empty if there is no such batch.
    pub(super) fn batch(&self, batch: usize) -> &[Move] {
        self.moves.get(self.batch_range(batch)).unwrap_or_default()
    }

    /// Returns the stages in order: the kind of each stage, and its batch if the stage belongs to a batch.
    fn schedule(&self) -> Vec<(Part, Option<usize>)> {
        let objects = self.era != Era::Bitmap;
        let mut parts = vec![(Part::Prepare, None)];
        if objects {
            parts.extend((!self.planned().is_empty()).then_some((Part::Reserve, None)));
            parts.push((Part::OpenRange, None));
        } else {
            parts.push((Part::Flags, None));
        }
        if !self.overlaps.is_empty() {
            parts.push((Part::Overlap, None));
        }
        let (planned, all) = (self.planned_batch_count(), self.batch_count());
        (0..planned).for_each(|batch| self.schedule_batch(batch, false, &mut parts));
        if objects {
            parts.push((Part::Flags, None));
        }
        (planned..all).for_each(|batch| self.schedule_batch(batch, true, &mut parts));
        if !self.records.is_empty() {
            parts.push((Part::Records, None));
        }
        parts.extend([Part::Close, Part::NoReturn].map(|part| (part, None)));
        let ends = [(Part::Retire, true), (Part::Settle, objects)];
        let ends = ends.into_iter().filter(|(_, is_needed)| *is_needed && !self.moves.is_empty());
        parts.extend(ends.map(|(part, _)| (part, None)));
        parts.push((Part::Finish, None));
        parts
    }

    fn schedule_batch(&self, batch: usize, is_swept: bool, parts: &mut Vec<(Part, Option<usize>)>) {
        let objects = self.era != Era::Bitmap;
        let has_shadows = self.batch(batch).iter().any(|candidate| candidate.shadow.is_some());
        let mut add = |condition: bool, more: &[Part]| {
            parts.extend(more.iter().filter(|_| condition).map(|part| (*part, Some(batch))));
        };
        add(!objects || is_swept, &[Part::Reserve]);
        add(has_shadows, &[Part::Shadows]);
        add(true, &[Part::Prewarm, Part::Linger]);
        add(objects, &[Part::Date]);
        add(true, &[Part::Barrier, Part::Flip, Part::Verify]);
        add(objects && has_shadows, &[Part::Temporaries]);
        add(has_shadows, &[Part::Unwarm]);
    }

    /// Returns the index of the stage that flips this batch.
    pub fn flip_stage(&self, batch: usize) -> Option<usize> {
        self.schedule().iter().position(|stage| *stage == (Part::Flip, Some(batch)))
    }

    /// Returns the index of the soak stage. Every Service has moved before this stage starts.
    pub fn soak_stage(&self) -> Option<usize> {
        self.schedule().iter().position(|stage| *stage == (Part::Close, None))
    }

    /// Returns the rollback stages that give every Service its old address, and the stage of the point of no return. The API
    /// servers' flag changes back only after these stages. If allocations are objects, both ranges are Service ranges until then.
    /// In the bitmap era, the flag is the first change of the operation, so a rollback changes it last.
    pub(super) fn moves_back(&self) -> Vec<Stage> {
        let mut stages = self.way_back();
        let is_move = |stage: &Stage| stage.batch.is_some() && Act::of(stage) == Act::Move;
        stages.retain(|stage| is_move(stage) || Part::named(&stage.name) == Some(Part::NoReturn));
        stages
    }

    /// Returns the index of the point of no return: the stage after which no rollback is possible.
    pub fn no_return_stage(&self) -> Option<usize> {
        self.schedule().iter().position(|stage| *stage == (Part::NoReturn, None))
    }

    fn title(&self, part: Part, batch: Option<usize>) -> String {
        let count = self.moves.len();
        let of = match batch {
            None => String::new(),
            Some(batch) => format!(
                "batch {} of {} ({}{})",
                batch.saturating_add(1),
                self.batch_count(),
                counted(self.batch(batch).len(), "Service", "Services"),
                self.tier_of_batch(batch).map(|tier| format!(" of tier `{tier}`")).unwrap_or_default(),
            ),
        };
        match part {
            Part::Prepare => "prepare the operation".into(),
            Part::Flags if self.flag == self.flag_before => "delete the other ServiceCIDRs".into(),
            Part::Flags => format!("set the range of every API server to `{}`", self.to),
            Part::Reserve if batch.is_some() => format!("reserve the addresses of {of}"),
            Part::Reserve => {
                let addresses = counted(self.planned().len(), "address", "addresses");
                format!("reserve {addresses} of `{}`", self.to)
            }
            Part::OpenRange => format!("create the ServiceCIDR of `{}`", self.to),
            Part::Shadows => format!("create the shadow Services of {of}"),
            Part::Prewarm => format!("route the new addresses of {of}"),
            Part::Linger => {
                format!("rollback only: keep the new addresses of {of} for clients that cached them")
            }
            Part::Date => format!("protect the old addresses of {of}"),
            Part::Barrier => format!("wait until every node routes {of} before the move"),
            Part::Flip => format!("move {of}"),
            Part::Verify => format!("wait until every node routes {of} after the move"),
            Part::Settle => "set the creation time of the new addresses to now".into(),
            Part::Temporaries => format!("free the temporary addresses of {of}"),
            Part::Unwarm => format!("remove the warming shadows of {of}"),
            Part::Overlap => "announce both ranges to routers".into(),
            Part::Records => "update the range in kubeadm's ConfigMaps".into(),
            Part::Close if self.moves.is_empty() => "soak: no address is held".into(),
            Part::Close => "soak: hold the old addresses until no client uses them".into(),
            Part::NoReturn => "point of no return: no rollback is possible after this stage".into(),
            Part::Retire => format!("stop holding {}", counted(count, "old address", "old addresses")),
            Part::Finish => "remove the remaining entries of the old range".into(),
        }
    }
}

/// Returns whether a Service moves alone, because all other Services depend on it.
fn is_alone(candidate: &Move) -> bool {
    !candidate.turn.is_any()
}

impl operation::OperationKind for Renumbering {
    const NAME: &'static str = KIND;
    const VERSION: u32 = VERSION;
}

impl Work for Renumbering {
    type Effect = Effect;

    fn stages(&self) -> Vec<Stage> {
        let stage = |(index, (part, batch)): (usize, (Part, Option<usize>))| Stage {
            index,
            name: part.name().to_string(),
            batch,
            title: self.title(part, batch),
        };
        self.schedule().into_iter().enumerate().map(stage).collect()
    }

    fn steps(&self, stage: &Stage) -> Vec<Step> {
        let Some(part) = Part::named(&stage.name) else { return Vec::new() };
        let layout = Layout::new(&self.prefix);
        let compiler = Compiler { work: self, layout: &layout };
        let batch = stage.batch.unwrap_or_default();
        let moves = stage.batch.map_or(self.moves.as_slice(), |batch| self.batch(batch));
        let each = |step: &dyn Fn(&Move) -> Step| -> Vec<Step> { moves.iter().map(step).collect() };
        let some =
            |step: &dyn Fn(&Move) -> Option<Step>| -> Vec<Step> { moves.iter().filter_map(step).collect() };
        match part {
            Part::Prepare => compiler.prepare(),
            Part::Flags => compiler.flags(),
            Part::Reserve if stage.batch.is_none() => {
                self.planned().iter().map(|m| compiler.reserve(m)).collect()
            }
            Part::Reserve => {
                let mut steps = Vec::new();
                if self.era != Era::Bitmap {
                    steps.extend(moves.iter().map(|m| compiler.reserve(m)));
                }
                if self.era != Era::Objects {
                    steps.push(Compiler::reserve_bits(batch));
                }
                steps
            }
            Part::OpenRange => vec![compiler.open_range(), compiler.range_is_ready()],
            Part::Shadows => compiler.shadows(batch, moves),
            Part::Prewarm => some(&|m| compiler.prewarm(m)),
            Part::Linger => vec![steps::linger(batch, moves)],
            Part::Date => each(&|m| compiler.date(m)),
            Part::Barrier => vec![steps::barrier("barrier", batch)],
            Part::Flip if self.era == Era::Bitmap => {
                let kept = std::iter::once(Compiler::keep_bits(batch));
                kept.chain(moves.iter().map(|m| compiler.flip(m))).collect()
            }
            Part::Flip => each(&|m| compiler.flip(m)),
            // A rollback runs these steps in reverse order. It first waits for the endpoints of recreated shadows, and then for
            // the nodes.
            Part::Verify => {
                let endpoints = some(&|m| steps::endpoints("endpoints-back", batch, m));
                std::iter::once(steps::barrier("verify", batch)).chain(endpoints).collect()
            }
            Part::Settle => each(&|m| compiler.settle(m)),
            Part::Temporaries => {
                let mut steps = vec![steps::seen("returned", batch)];
                steps.extend(moves.iter().flat_map(|m| compiler.free_temporaries(m)));
                steps
            }
            Part::Unwarm => compiler.unwarmed(batch, moves),
            Part::Overlap => self.overlaps.iter().map(Compiler::overlap).collect(),
            Part::Records => self.records.iter().map(|record| compiler.record(record)).collect(),
            Part::Close => compiler.close(),
            Part::NoReturn if self.era == Era::Bitmap => vec![steps::no_return()],
            Part::NoReturn => vec![steps::all_seen(), steps::no_return()],
            Part::Retire => each(&|m| compiler.retire(m)),
            Part::Finish => compiler.finish(),
        }
    }

    /// Returns whether a later stage can run during a wait. After the flip of a batch, the operation waits for the nodes. During
    /// this wait it runs all stages of the next batch that come before the flip of that batch. If a Service of the next batch
    /// must move alone, the next batch does not start during the wait.
    fn may_be_beside(&self, waiting: &Stage, later: &Stage) -> bool {
        let (Some(batch), Some(next)) = (waiting.batch, later.batch) else { return false };
        let is_before_flips = matches!(
            Part::named(&later.name),
            Some(Part::Reserve | Part::Shadows | Part::Prewarm | Part::Linger | Part::Date | Part::Barrier)
        );
        Part::named(&waiting.name) == Some(Part::Verify)
            && is_before_flips
            && next == batch.saturating_add(1)
            && !self.batch(next).iter().any(is_alone)
    }

    /// Returns the stages of a rollback, in reverse order. The stages of consecutive batches are also sorted: first all these
    /// batches move back, then the operation lingers once for all of them, then their new addresses are removed. In the bitmap
    /// era, the operation lingers once per batch, because after a few minutes, API servers free the bit of an
    /// address that has no Service.
    fn way_back(&self) -> Vec<Stage> {
        let mut stages = self.stages();
        stages.reverse();
        let is_flags = |stage: &&mut Stage| stage.name == Part::Flags.name() && self.flag != self.flag_before;
        for stage in stages.iter_mut().filter(is_flags) {
            stage.title =
                format!("set the range of every API server back to `{}`", as_flag(&self.flag_before));
        }
        if self.era == Era::Bitmap {
            return stages;
        }
        let mut order = Vec::with_capacity(stages.len());
        for run in stages.chunk_by(|one, next| one.batch.is_some() && next.batch.is_some()) {
            for act in [Act::Move, Act::Linger, Act::Leave] {
                order.extend(run.iter().filter(|stage| Act::of(stage) == act).cloned());
            }
        }
        order
    }
}

/// The phases of a batch's rollback.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Every Service gets its old address.
    Move,
    Linger,
    /// The new addresses are removed.
    Leave,
}

impl Act {
    fn of(stage: &Stage) -> Self {
        match Part::named(&stage.name) {
            Some(Part::Linger) => Self::Linger,
            // All batches use the same temporary addresses, one after the other.
            Some(Part::Temporaries | Part::Reserve | Part::Shadows | Part::Prewarm | Part::Date) => {
                Self::Leave
            }
            _ => Self::Move,
        }
    }
}
