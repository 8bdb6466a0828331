//! A renumbering as stages of steps, in the order that the cluster's storage era asks for.
//!
//! Within a batch the stages are arranged so that the way back, which runs them in reverse, is the same
//! protocol with the addresses exchanged: an address is handed to the allocator, the data plane is waited
//! for, and only then the Service takes it. Stages that matter in one direction only do nothing in the other.

use std::ops::Range;

use super::plan::{Move, Renumbering};
use super::steps::{self, Compiler};
use crate::operation::{Stage, Step, Work};
use crate::survey::{Era, Layout};

/// The parts of the operation. `usize` is a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Prepare,
    Flags,
    Reserve,
    OpenRange,
    ReserveBits(usize),
    Shadows(usize),
    Prewarm(usize),
    HandOver(usize),
    SettleOld(usize),
    Barrier(usize),
    Flip(usize),
    HandBack(usize),
    Verify(usize),
    Settle(usize),
    Unwarm(usize),
    Close,
    NoReturn,
    Retire,
    Finish,
}

impl Renumbering {
    /// Returns the batches: Services moved together. The cluster's DNS and the API servers' own Service have
    /// a batch of their own each.
    pub fn batches(&self) -> Vec<Range<usize>> {
        let mut batches: Vec<Range<usize>> = Vec::new();
        for (index, candidate) in self.moves.iter().enumerate() {
            let alone = is_alone(candidate);
            match batches.last_mut() {
                Some(last) if !alone && last.len() < self.batch_size && !self.is_alone_at(last.start) => {
                    last.end = index.saturating_add(1);
                }
                _ => batches.push(index..index.saturating_add(1)),
            }
        }
        batches
    }

    fn is_alone_at(&self, index: usize) -> bool {
        self.moves.get(index).is_some_and(is_alone)
    }

    fn batch(&self, batch: usize) -> &[Move] {
        self.batches().get(batch).and_then(|range| self.moves.get(range.clone())).unwrap_or_default()
    }

    fn has_shadows(&self, batch: usize) -> bool {
        self.batch(batch).iter().any(|candidate| candidate.shadow.is_some())
    }

    fn parts(&self) -> Vec<Part> {
        let mut parts = vec![Part::Prepare];
        let objects = self.era != Era::Bitmap;
        if objects {
            parts.extend([Part::Reserve, Part::OpenRange]);
        } else {
            parts.push(Part::Flags);
        }
        for batch in 0..self.batches().len() {
            if !objects {
                parts.push(Part::ReserveBits(batch));
            }
            if self.has_shadows(batch) {
                parts.push(Part::Shadows(batch));
            }
            parts.push(Part::Prewarm(batch));
            if objects {
                parts.extend([Part::HandOver(batch), Part::SettleOld(batch)]);
            }
            parts.extend([Part::Barrier(batch), Part::Flip(batch), Part::Verify(batch)]);
            if objects {
                parts.extend([Part::HandBack(batch), Part::Settle(batch)]);
            }
            if self.has_shadows(batch) {
                parts.push(Part::Unwarm(batch));
            }
        }
        if objects {
            parts.push(Part::Flags);
        }
        parts.extend([Part::Close, Part::NoReturn, Part::Retire, Part::Finish]);
        parts
    }

    /// Returns the index of the stage that flips this batch: where an operation is "in the middle".
    pub fn flip_stage(&self, batch: usize) -> Option<usize> {
        self.parts().iter().position(|part| *part == Part::Flip(batch))
    }

    /// Returns the index of the stage after which there is no way back.
    pub fn no_return_stage(&self) -> Option<usize> {
        self.parts().iter().position(|part| *part == Part::NoReturn)
    }

    fn title(&self, part: Part) -> (&'static str, String) {
        let count = self.moves.len();
        let of = |batch: usize| {
            let total = self.batches().len();
            format!("batch {} of {total} ({} Services)", batch.saturating_add(1), self.batch(batch).len())
        };
        match part {
            Part::Prepare => ("prepare", "make ready what the move needs".into()),
            Part::Flags => ("flags", format!("every API server takes `{}` as its range", self.to)),
            Part::Reserve => ("reserve", format!("reserve {count} addresses of `{}`", self.to)),
            Part::OpenRange => ("open-range", format!("create the ServiceCIDR of `{}`", self.to)),
            Part::ReserveBits(batch) => ("reserve", format!("reserve the addresses of {}", of(batch))),
            Part::Shadows(batch) => ("shadows", format!("make the shadow Services of {}", of(batch))),
            Part::Prewarm(batch) => ("prewarm", format!("route the new addresses of {}", of(batch))),
            Part::HandOver(batch) => {
                ("hand-over", format!("give the allocator the new addresses of {}", of(batch)))
            }
            Part::SettleOld(batch) => {
                ("settle-old", format!("on the way back: settle the old addresses of {}", of(batch)))
            }
            Part::Barrier(batch) => ("barrier", format!("wait until every node routes {}", of(batch))),
            Part::Flip(batch) => ("flip", format!("move {}", of(batch))),
            Part::HandBack(batch) => (
                "hand-back",
                format!("on the way back: give the allocator the old addresses of {}", of(batch)),
            ),
            Part::Verify(batch) => ("verify", format!("wait until every node routes {} as moved", of(batch))),
            Part::Settle(batch) => ("settle", format!("settle the new addresses of {}", of(batch))),
            Part::Unwarm(batch) => ("unwarm", format!("remove the warming shadows of {}", of(batch))),
            Part::Close => ("close", "leave the old range to its end".into()),
            Part::NoReturn => ("no-return", "from here on there is no way back".into()),
            Part::Retire => ("retire", format!("stop holding {count} old addresses")),
            Part::Finish => ("finish", "bring everything else that records the range into step".into()),
        }
    }
}

/// Services that everything else depends on move alone.
fn is_alone(candidate: &Move) -> bool {
    matches!(
        (candidate.namespace.as_str(), candidate.name.as_str()),
        ("default", "kubernetes") | ("kube-system", "kube-dns" | "coredns")
    )
}

impl Work for Renumbering {
    fn stages(&self) -> Vec<Stage> {
        let stage = |(index, part): (usize, Part)| {
            let (name, title) = self.title(part);
            Stage { index, name: name.to_string(), title }
        };
        self.parts().into_iter().enumerate().map(stage).collect()
    }

    fn steps(&self, stage: &Stage) -> Vec<Step> {
        let Some(part) = self.parts().get(stage.index).copied() else { return Vec::new() };
        let layout = Layout::new(&self.prefix);
        let compiler = Compiler { work: self, layout: &layout };
        let each = |moves: &[Move], step: &dyn Fn(&Compiler<'_>, &Move) -> Vec<Step>| -> Vec<Step> {
            moves.iter().flat_map(|candidate| step(&compiler, candidate)).collect()
        };
        match part {
            Part::Prepare => compiler.prepare(),
            Part::Flags => compiler.flags(),
            Part::Reserve => each(&self.moves, &|c, m| vec![c.reserve(m)]),
            Part::OpenRange => vec![compiler.open_range()],
            Part::ReserveBits(batch) => vec![compiler.reserve_bits(batch, self.batch(batch))],
            Part::Shadows(batch) => compiler.shadows(batch, self.batch(batch)),
            Part::Prewarm(batch) => each(self.batch(batch), &|c, m| c.prewarm(m).into_iter().collect()),
            Part::HandOver(batch) => each(self.batch(batch), &|c, m| vec![c.hand_over(m)]),
            Part::SettleOld(batch) => each(self.batch(batch), &|c, m| c.settle_old(m).into_iter().collect()),
            Part::Barrier(batch) => vec![steps::barrier("barrier", batch)],
            Part::Flip(batch) => each(self.batch(batch), &|c, m| vec![c.flip(m)]),
            Part::HandBack(batch) => each(self.batch(batch), &|c, m| c.hand_back(m).into_iter().collect()),
            Part::Verify(batch) => vec![steps::barrier("verify", batch)],
            Part::Settle(batch) => each(self.batch(batch), &|c, m| vec![c.settle(m)]),
            Part::Unwarm(batch) => each(self.batch(batch), &|c, m| c.unwarm(m).into_iter().collect()),
            Part::Close => compiler.close(),
            Part::NoReturn => vec![steps::no_return()],
            Part::Retire => each(&self.moves, &|c, m| vec![c.retire(m)]),
            Part::Finish => compiler.finish(),
        }
    }
}
