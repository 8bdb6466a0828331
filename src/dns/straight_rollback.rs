//! The straight rollback of a cutover: one update for each name, from the records that it has now to its old records.
//!
//! The journal does not decide where this way starts, because a process can have been killed before it recorded its last change.
//! The way starts at the point of the cutover whose records the name has now. If the name has the records of no point, another
//! client changed it, and the name stays as it is.

use std::cmp::Reverse;

use super::annotations::{Annotating, Annotations};
use super::cutover::{Change, Cutover, Name, Point, Share};
use crate::inventory::host_object::HostObject;
use crate::nameserver::{RecordSet, SetChange};
use crate::operation::{Action, Shortcut, State, Step, StepId};

/// What a name has at a point of the cutover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// All record sets, with ownership records.
    pub sets: Vec<RecordSet>,
    /// The object that publishes the name, and its annotations, if ExternalDNS manages the records.
    pub published: Option<(HostObject, Annotations)>,
}

impl Place {
    /// Returns the change that takes a name from this place to another place.
    pub fn to(&self, name: &Name, other: &Self) -> Change {
        let annotating = self.published.as_ref().zip(other.published.as_ref());
        let annotating = annotating.filter(|((_, from), (_, to))| from != to);
        Change {
            name: name.name.clone(),
            sets: SetChange::between(&self.sets, &other.sets),
            annotating: annotating.map(|((object, from), (_, to))| Annotating {
                object: object.clone(),
                from: from.clone(),
                to: to.clone(),
            }),
            probe: None,
            is_straight: true,
        }
    }
}

/// Returns the point to which a rollback takes a name straight back; `None` for the state before the cutover. If ExternalDNS
/// writes the records, this is the point at which an annotation names the original TTL: ExternalDNS restores a TTL only from an
/// annotation, so the rollback removes the annotation later.
fn home(name: &Name) -> Option<Point> {
    name.published.is_some().then_some(Point::Held)
}

impl Cutover {
    /// Returns what a name has at home, and then at each later point. The last point comes first.
    pub(super) fn places(&self, name: &Name) -> Vec<Place> {
        let later = self.points().into_iter().rev().map(Some).filter(|point| *point > home(name));
        std::iter::once(home(name)).chain(later).map(|point| self.place(name, point)).collect()
    }

    /// Returns what a name has before the cutover.
    pub(super) fn start(&self, name: &Name) -> Place {
        self.place(name, None)
    }

    fn place(&self, name: &Name, point: Option<Point>) -> Place {
        let sets = name.all_sets(point, self.ttl);
        let published = name.published.as_ref();
        let annotations = published.zip(name.annotations(point, self.ttl));
        Place { sets, published: annotations.map(|(published, at)| (published.object.clone(), at)) }
    }

    /// Returns the steps that take names straight back. The names that send most clients to the mirror come first.
    pub(super) fn shortcuts(&self, state: &dyn Fn(&StepId) -> Option<State>) -> Vec<Shortcut<Change>> {
        let mut found: Vec<(Share, Shortcut<Change>)> =
            self.names.iter().filter_map(|name| self.shortcut(name, state)).collect();
        found.sort_by_key(|(share, _)| Reverse(*share));
        found.into_iter().map(|(_, shortcut)| shortcut).collect()
    }

    /// Returns the step that takes a name straight back, and the largest share of clients that the name sends to the mirror;
    /// `None` if no step of the name has to be undone.
    fn shortcut(
        &self,
        name: &Name,
        state: &dyn Fn(&StepId) -> Option<State>,
    ) -> Option<(Share, Shortcut<Change>)> {
        let is_begun = |point: &Point| {
            !matches!(state(&self.step(name, *point)), None | Some(State::UndoDone | State::Failed))
        };
        let home = home(name);
        let points = self.points().into_iter().filter(|point| Some(*point) > home);
        let mut begun: Vec<Point> = points.filter(is_begun).collect();
        let last = begun.pop()?;
        let share = name.shares_of(&self.sets(name, Some(last))).into_values().max().unwrap_or_default();
        let change = self.place(name, Some(last)).to(name, &self.place(name, home));
        let step = Step {
            id: self.step(name, last),
            subject: name.name.clone(),
            action: Action::Do(change),
            independent: false,
            back_of: Vec::new(),
        };
        let covers = begun.into_iter().map(|point| self.step(name, point)).collect();
        Some((share, Shortcut { step, covers }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::*;
    use crate::nameserver::RecordKind;

    /// A cutover of `one`, which moves in the stages 50 % and 100 %, and of `all`, which moves at 100 %.
    fn work() -> Cutover {
        let set = |name: &str, ttl, data: &[&str]| {
            let data = data.iter().map(ToString::to_string).collect();
            vec![RecordSet::new(format!("{name}.example.com"), RecordKind::A, ttl, data)]
        };
        let name = |name: &str, half: &[&str]| {
            json!({
                "name": format!("{name}.example.com"), "by": [], "before": set(name, 300, &["o"]),
                "stages": [set(name, 60, half), set(name, 60, &["n"])], "after": set(name, 300, &["n"]),
                "probe": {"scheme": "tcp", "port": 443, "at": []},
            })
        };
        let work = json!({
            "zone": "example.com", "service": {"provider": "rfc2136", "server": "192.0.2.53:53"},
            "resolver": "192.0.2.54:53", "ttl": 60, "soak": 60, "shares": [50, 100],
            "names": [name("one", &["n", "o"]), name("all", &["o"])],
        });
        serde_json::from_value(work).unwrap()
    }

    fn shortcuts(states: &[(&str, State)]) -> Vec<(String, Vec<String>)> {
        let states: HashMap<&str, State> = states.iter().copied().collect();
        let found = work().shortcuts(&|step| states.get(step.0.as_str()).copied());
        let ids = |covers: Vec<StepId>| covers.into_iter().map(|step| step.0).collect();
        found.into_iter().map(|Shortcut { step, covers }| (step.id.0, ids(covers))).collect()
    }

    #[test]
    fn last_step_of_a_name_undoes_the_earlier_ones() {
        let of = |steps: &[&str]| steps.iter().map(|step| format!("{step}.example.com")).collect::<Vec<_>>();
        let (half, all) =
            (("share-50/one.example.com", State::Done), ("share-100/all.example.com", State::Started));
        let lowered = [("ttl/one.example.com", State::Done), ("ttl/all.example.com", State::Done), half];
        assert_eq!(
            shortcuts(&lowered),
            [
                ("share-50/one.example.com".to_string(), of(&["ttl/one"])),
                ("ttl/all.example.com".to_string(), vec![])
            ],
            "the name that sends clients to the mirror comes first"
        );
        let further = [lowered.as_slice(), &[all]].concat();
        let found = shortcuts(&further);
        assert_eq!(
            found[0],
            ("share-100/all.example.com".to_string(), of(&["ttl/all"])),
            "it can have started"
        );
        assert_eq!(found[1].0, "share-50/one.example.com");
        // A process was killed after some of the records of a name.
        let killed = [("ttl/one.example.com", State::Done), ("share-50/one.example.com", State::UndoDone)];
        assert_eq!(shortcuts(&killed), [("ttl/one.example.com".to_string(), vec![])]);
        assert_eq!(shortcuts(&[("share-50/one.example.com", State::Failed)]), []);
    }

    #[test]
    fn way_home_starts_at_any_point() {
        let work = work();
        let places = work.places(&work.names[0]);
        let ttls: Vec<(u32, usize)> =
            places.iter().map(|place| (place.sets[0].ttl, place.sets[0].data.len())).collect();
        assert_eq!(
            ttls,
            [(300, 1), (300, 1), (60, 1), (60, 2), (60, 1), (300, 1)],
            "home, and the last point first"
        );
        let change = places[3].to(&work.names[0], &places[0]);
        assert_eq!(change.sets, SetChange::between(&places[3].sets, &work.names[0].before));
        assert!(change.is_straight && change.annotating.is_none());
    }
}
