//! Services that are to move no more before they have moved, and what was made for them: their shadows go, because an API
//! server may have released the addresses that these have; then nothing keeps the Service itself.

use super::{Watch, as_seen, is_the_planned, mend_of};
use crate::operation::{Mend, State, StepId};
use crate::renumber::index::Index;
use crate::renumber::intention::{Move, Renumbering};
use crate::survey::{Layout, ServiceRecord, Survey};

/// Returns what removes shadows, one a Service, of Services that are gone, are being deleted, or have other addresses, before
/// they moved; and then what lets go of the Service itself. `now` is in seconds since 1970.
pub fn deserted(
    work: &Renumbering,
    survey: &Survey,
    state: impl Fn(&StepId) -> Option<State>,
    now: i64,
) -> Vec<Mend> {
    let layout = Layout::new(&work.prefix);
    let guard = Watch::of(work, &layout, survey, now);
    let moves = work.moves.iter().filter(|candidate| !candidate.has_moved(&state));
    moves.filter_map(|it| guard.deserted(it, is_to_move).or_else(|| guard.unpinned(it))).collect()
}

/// Returns the moves whose Services somebody has deleted, and that no finalizer keeps any more.
pub fn left_over<'w>(work: &'w Renumbering, survey: &Survey) -> Vec<&'w Move> {
    let index = Index::of(survey);
    let is_left_over = |candidate: &&Move| {
        let service = index.service(candidate).filter(|service| service.uid == candidate.uid);
        candidate.shadow.is_some() && service.is_some_and(ServiceRecord::is_left_over)
    };
    work.moves.iter().filter(is_left_over).collect()
}

impl Watch<'_> {
    /// What removes a shadow of a Service that is to move no more; `is_to_move` judges one that is there.
    pub(super) fn deserted(
        &self,
        candidate: &Move,
        is_to_move: fn(&Move, &ServiceRecord) -> bool,
    ) -> Option<Mend> {
        if self.index.service(candidate).is_some_and(|service| is_to_move(candidate, service)) {
            return None;
        }
        let (name, edits) = self.first_shadow(candidate)?;
        let says = format!("it does not move any more; its shadow `{name}` is removed");
        Some(mend_of(candidate, "hold-given-up", says, edits, vec![self.as_it_was(candidate)]))
    }

    /// What lets go of a Service that is to move no more, once it has no shadow.
    fn unpinned(&self, candidate: &Move) -> Option<Mend> {
        let service = self.index.service(candidate)?;
        if service.uid != candidate.uid || !service.is_moving() || is_to_move(candidate, service) {
            return None;
        }
        let edits = vec![self.compiler.pinned(candidate, false)];
        let says = "it does not move any more; its finalizer is removed".to_string();
        Some(mend_of(candidate, "hold-given-up", says, edits, vec![as_seen(service)]))
    }
}

/// Whether it is that one, and does not go once nothing of netsurgeon keeps it.
fn is_to_move(candidate: &Move, service: &ServiceRecord) -> bool {
    is_the_planned(candidate, service) && !service.is_going()
}
