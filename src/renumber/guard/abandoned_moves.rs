//! Repairs for Services that no longer move because they were deleted or changed before their flip. The shadows of a Service are
//! removed first, because an API server may have released the addresses of the shadows. Then the finalizer of the Service is
//! removed.

use super::{Watch, as_seen, is_the_planned, repair_of};
use crate::operation::{Repair, State, StepId};
use crate::renumber::index::Index;
use crate::renumber::intention::{Move, Renumbering};
use crate::survey::{Layout, ServiceRecord, Survey};

/// Returns one repair for each Service that was deleted, is being deleted, or got other addresses before it moved. The repair
/// removes one shadow or, if no shadow is left, the Service's finalizer. `now` is in seconds since 1970.
pub fn deserted(
    work: &Renumbering,
    survey: &Survey,
    state: impl Fn(&StepId) -> Option<State>,
    now: i64,
) -> Vec<Repair> {
    let layout = Layout::new(&work.prefix);
    let guard = Watch::of(work, &layout, survey, now);
    let moves = work.moves.iter().filter(|candidate| !candidate.has_moved(&state));
    moves.filter_map(|it| guard.deserted(it, is_to_move).or_else(|| guard.unpinned(it))).collect()
}

/// Returns the moves of Services that have a deletion timestamp and no finalizer.
pub fn left_over<'w>(work: &'w Renumbering, survey: &Survey) -> Vec<&'w Move> {
    let index = Index::of(survey);
    let is_left_over = |candidate: &&Move| {
        let service = index.service(candidate).filter(|service| service.uid == candidate.uid);
        candidate.shadow.is_some() && service.is_some_and(ServiceRecord::is_left_over)
    };
    work.moves.iter().filter(is_left_over).collect()
}

impl Watch<'_> {
    /// Returns the repair that removes a shadow of a Service that no longer moves. `is_to_move` decides whether an existing
    /// Service still moves.
    pub(super) fn deserted(
        &self,
        candidate: &Move,
        is_to_move: fn(&Move, &ServiceRecord) -> bool,
    ) -> Option<Repair> {
        if self.index.service(candidate).is_some_and(|service| is_to_move(candidate, service)) {
            return None;
        }
        let (name, edits) = self.first_shadow(candidate)?;
        let says = format!("it no longer moves; its shadow `{name}` was removed");
        Some(repair_of(candidate, "hold-given-up", says, edits, vec![self.as_it_was(candidate)]))
    }

    /// Returns the repair that removes the finalizer of a Service that no longer moves and has no shadow left.
    fn unpinned(&self, candidate: &Move) -> Option<Repair> {
        let service = self.index.service(candidate)?;
        if service.uid != candidate.uid || !service.is_moving() || is_to_move(candidate, service) {
            return None;
        }
        let edits = vec![self.compiler.pinned(candidate, false)];
        let says = "it no longer moves; its finalizer was removed".to_string();
        Some(repair_of(candidate, "hold-given-up", says, edits, vec![as_seen(service)]))
    }
}

/// Returns whether a Service is the planned Service and is not being deleted.
fn is_to_move(candidate: &Move, service: &ServiceRecord) -> bool {
    is_the_planned(candidate, service) && !service.is_going()
}
