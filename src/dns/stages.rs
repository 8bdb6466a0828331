//! The stages of a cutover and their steps. They depend only on the plan.

use super::cutover::{Awaited, Change, Cutover, Name, Point, SOAK};
use crate::operation::{Action, Shortcut, Stage, State, Step, StepId, Wait, WaitKind as _, Work};

impl Cutover {
    fn changes(&self, point: Point) -> Vec<Step<Change>> {
        let step = |name: &Name| {
            let action = Action::Do(self.change(name, point)?);
            let (id, subject) = (self.step(name, point), name.name.clone());
            Some(Step { id, subject, action, independent: false, back_of: Vec::new() })
        };
        self.names.iter().filter_map(step).collect()
    }

    fn wait(id: StepId, kind: Awaited, batch: Option<usize>, until: &str) -> Step<Change> {
        let wait = Wait { kind, batch, subject: None, until: until.to_string() };
        let action = Action::Wait(wait);
        Step { id, subject: String::new(), action, independent: false, back_of: Vec::new() }
    }

    /// Returns a wait that exists only once. Its id is the name of its kind.
    fn only_wait(kind: Awaited, until: &str) -> Step<Change> {
        Self::wait(StepId(kind.name().to_string()), kind, None, until)
    }

    /// Returns the steps that send clients to the mirror.
    fn share_steps(&self) -> Vec<StepId> {
        let stages = (0..self.shares.len()).flat_map(|stage| self.changes(Point::Stage(stage)));
        stages.map(|step| step.id).collect()
    }

    /// Returns the waits that a rollback runs after the names have their old records again.
    fn waits_of_rollback(&self) -> Vec<Step<Change>> {
        let back_of = self.share_steps();
        let at_end: Vec<StepId> = self.changes(Point::Final).into_iter().map(|step| step.id).collect();
        let wait = |kind, until, back_of: &Vec<StepId>| Step {
            back_of: back_of.clone(),
            ..Self::only_wait(kind, until)
        };
        let dropped = "caches have dropped the records of the mirror";
        let mut waits = Vec::new();
        if self.final_ttl() > self.stage_ttl() {
            waits.push(wait(Awaited::DrainedAfterEnd, dropped, &at_end));
        }
        waits.push(wait(Awaited::Drained, dropped, &back_of));
        waits.push(wait(Awaited::Restored, "the old records are served", &back_of));
        waits
    }
}

/// Returns whether a stage changes names. The other stages only wait.
pub(super) fn changes_names(stage: &Stage) -> bool {
    matches!(stage.name.as_str(), OWN | TTL | SHARE | FINAL | HOME)
}

/// Returns whether a stage takes names straight back in a rollback.
pub(super) fn is_way_home(stage: &Stage) -> bool {
    stage.name == HOME
}

/// Returns whether a stage runs only in a rollback.
pub(super) fn is_of_rollback(stage: &Stage) -> bool {
    matches!(stage.name.as_str(), RETURN | REPUBLISH)
}

/// The names of stages.
const OWN: &str = "own";
const OWNERS: &str = "owners";
const TTL: &str = "ttl";
const PUBLISH: &str = "publish";
const REPUBLISH: &str = "republish";
const SETTLE: &str = "settle";
const CACHES: &str = "caches";
const RETURN: &str = "return";
/// These stages exist only in a rollback. They are not part of [`Work::stages`], so an operation that was started without them
/// can have them.
const HOME: &str = "home";
const RESOLVE: &str = "resolve";
const CONFIRM: &str = "confirm";
const SHARE: &str = "share";
const FINAL: &str = "final";

impl Work for Cutover {
    type Effect = Change;

    fn stages(&self) -> Vec<Stage> {
        let mut stages: Vec<Stage> = Vec::new();
        let mut add = |name: &str, batch, title: String| {
            stages.push(Stage { index: stages.len(), name: name.to_string(), batch, title });
        };
        let by_annotations = self.names.iter().any(|name| name.published.is_some());
        if self.has_change(Point::Held) {
            let title = if by_annotations {
                "write the present TTLs as annotations"
            } else {
                "take the names over from ExternalDNS"
            };
            add(OWN, None, title.to_string());
            if self.owner_cache > 0 {
                add(OWNERS, None, "wait until ExternalDNS has read the new owner".to_string());
            }
        }
        if self.has_change(Point::Lowered) {
            if by_annotations {
                add(REPUBLISH, None, "wait until ExternalDNS has restored the TTLs".to_string());
            }
            add(TTL, None, format!("lower the TTLs to {} s", self.ttl));
            if by_annotations {
                add(PUBLISH, None, "wait until ExternalDNS has lowered the TTLs".to_string());
            }
            add(CACHES, None, "wait until caches have dropped the old TTLs".to_string());
        }
        add(RETURN, None, "wait until clients have the old records again".to_string());
        for (batch, share) in self.shares.iter().enumerate() {
            add(SHARE, Some(batch), format!("send up to {share} % of clients to the mirror"));
            add(
                CONFIRM,
                Some(batch),
                "wait until every name server and the resolver return the new records".to_string(),
            );
            add(SOAK, Some(batch), format!("observe the share of {share} %"));
        }
        if self.has_change(Point::Final) {
            let heir = self.heir.as_ref().filter(|_| self.names.iter().any(|name| name.ownership.is_some()));
            let heir =
                heir.map_or_else(String::new, |heir| format!(", and give the names to ExternalDNS `{heir}`"));
            add(FINAL, None, format!("restore the TTLs{heir}"));
            if by_annotations {
                add(SETTLE, None, "wait until ExternalDNS has restored the TTLs".to_string());
            }
        }
        stages
    }

    fn steps(&self, stage: &Stage) -> Vec<Step<Change>> {
        let batch = stage.batch.unwrap_or_default();
        let wait = |name: &str, kind, until: &str| {
            vec![Self::wait(self.wait_of(name, batch), kind, stage.batch, until)]
        };
        match stage.name.as_str() {
            OWN => self.changes(Point::Held),
            OWNERS => vec![Self::only_wait(Awaited::Owners, "ExternalDNS has read the new owner")],
            REPUBLISH => {
                let back_of = self.changes(Point::Lowered).into_iter().map(|step| step.id).collect();
                let wait = Self::only_wait(Awaited::Republished, "the original TTLs are served");
                vec![Step { back_of, ..wait }]
            }
            TTL => self.changes(Point::Lowered),
            PUBLISH => vec![Self::only_wait(Awaited::Published, "the lowered TTLs are served")],
            CACHES => vec![Self::only_wait(Awaited::Caches, "caches have dropped the old TTLs")],
            RETURN => self.waits_of_rollback(),
            RESOLVE => vec![Step {
                back_of: self.share_steps(),
                ..Self::only_wait(Awaited::Resolved, "the resolver returns the old records")
            }],
            SHARE => self.changes(Point::Stage(batch)),
            CONFIRM => wait(CONFIRM, Awaited::Confirmed, "the new records are served"),
            SOAK => wait(SOAK, Awaited::Soak, "the stage has lasted long enough"),
            FINAL => self.changes(Point::Final),
            SETTLE => vec![Self::only_wait(Awaited::Settled, "the original TTLs are served")],
            _ => Vec::new(),
        }
    }

    /// Returns the stage that restores the old records of every name.
    fn straight_back(
        &self,
        state: &dyn Fn(&StepId) -> Option<State>,
    ) -> Option<(Stage, Vec<Shortcut<Change>>)> {
        let title = "restore the old records".to_string();
        Some((Stage { index: 0, name: HOME.to_string(), batch: None, title }, self.shortcuts(state)))
    }

    /// Returns the stages of a rollback. A rollback does not wait at each stage, because the old targets worked before the
    /// cutover.
    fn way_back(&self) -> Vec<Stage> {
        let is_skipped = |stage: &Stage| {
            matches!(stage.name.as_str(), OWNERS | PUBLISH | CACHES | CONFIRM | SOAK | SETTLE)
        };
        let mut back = Vec::new();
        for stage in self.stages().into_iter().rev().filter(|stage| !is_skipped(stage)) {
            let resolve = (stage.name == RETURN).then(|| Stage {
                name: RESOLVE.to_string(),
                title: "check the answers of the resolver".to_string(),
                ..stage.clone()
            });
            back.push(stage);
            back.extend(resolve);
        }
        back
    }
}
