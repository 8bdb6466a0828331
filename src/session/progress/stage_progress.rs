//! The progress of the current stage, for kinds of operation whose stages each change many subjects. A kind gives the words for
//! its subjects, and figures of its own.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Pace, Progress};
use crate::operation::{Event, Stage, Told};
use crate::session::metrics::Page;
use crate::words::{counted, in_words, titled};

/// The words for the subjects of a kind of operation.
#[derive(Debug, Clone, Copy)]
pub struct SubjectWords {
    /// One subject, for example `name`.
    pub one: &'static str,
    /// Several subjects, for example `names`. This word is also a part of the names of metrics.
    pub many: &'static str,
    /// Names of the log fields for all subjects of a stage, the changed subjects, and the skipped subjects.
    pub fields: [&'static str; 3],
    /// What follows a number of changed subjects.
    pub changed: &'static str,
    /// What follows a number of subjects that were changed back.
    pub back: &'static str,
    /// Start of the names of metrics, for example `netsurgeon_dns`.
    pub metrics: &'static str,
}

/// The figures of a kind of operation, in addition to its subjects.
pub trait StageFigures: Send {
    /// Words for the subjects of this kind.
    const WORDS: SubjectWords;

    /// Returns whether the stage changes subjects. Other stages only wait.
    fn changes_subjects(&self, stage: &Stage) -> bool;

    /// Returns whether the stage is shown if it runs in this direction.
    fn is_shown(&self, _stage: &Stage, _back: bool) -> bool {
        true
    }

    /// Notes that a stage starts.
    fn stage_started(&mut self, _stage: &Stage, _back: bool) {}

    /// Returns further fields of a log line.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// Writes further metrics.
    fn write(&self, _page: &mut Page) {}
}

/// The progress figures of the current stage.
pub struct StageProgress<F> {
    figures: F,
    operation: String,
    /// Number of subjects in the most recently started stage that changes subjects. `changed` counts the subjects that this
    /// stage has changed, and `before` counts those of them that an earlier run had changed.
    subjects: usize,
    changed: usize,
    before: usize,
    skipped: usize,
    stage: String,
    title: String,
    /// Number of the batch to which the current stage belongs, from 1; 0 if it belongs to no batch.
    batch: usize,
    back: bool,
    waits_until: Option<Instant>,
    pace: Option<Pace>,
}

impl<F: StageFigures> StageProgress<F> {
    /// Returns the figures at the start of a run.
    pub fn new(operation: &str, subjects: usize, figures: F) -> Self {
        Self {
            figures,
            operation: operation.to_string(),
            subjects,
            changed: 0,
            before: 0,
            skipped: 0,
            stage: String::new(),
            title: String::new(),
            batch: 0,
            back: false,
            waits_until: None,
            pace: None,
        }
    }

    fn started(&mut self, stage: &Stage, steps: usize, back: bool, now: Instant) {
        if !self.figures.is_shown(stage, back) {
            return;
        }
        self.stage.clone_from(&stage.name);
        self.title = titled(&stage.title, back);
        self.batch = stage.batch.map_or(0, |batch| batch.saturating_add(1));
        self.back = back;
        self.figures.stage_started(stage, back);
        if self.figures.changes_subjects(stage) {
            (self.changed, self.before, self.subjects) = (0, 0, steps);
            self.pace = Some(Pace::new(now));
        }
    }

    /// Counts the subject of a step. Returns whether the step has a subject.
    fn count(&mut self, step: Told<'_>) -> bool {
        let has_subject = !step.subject.is_empty();
        self.changed = self.changed.saturating_add(usize::from(has_subject));
        has_subject
    }
}

impl<F: StageFigures> Progress for StageProgress<F> {
    fn note(&mut self, event: &Event<'_>, now: Instant) -> bool {
        match event {
            Event::StageStarted { stage, steps, back } => self.started(stage, *steps, *back, now),
            Event::StepStarted { left, .. } => {
                self.waits_until = left.and_then(|left| now.checked_add(left));
            }
            Event::StepDone { step } => {
                self.waits_until = None;
                return self.count(*step);
            }
            // An earlier run changed the subject and reported the change, so this run only counts the subject.
            Event::StepSkipped { step } => {
                self.before = self.before.saturating_add(usize::from(self.count(*step)));
            }
            Event::LeftAlone { .. } => self.skipped = self.skipped.saturating_add(1),
            Event::CheckpointAsked { .. } => self.pace.iter_mut().for_each(|pace| pace.rest(now)),
            Event::CheckpointAnswered => self.pace.iter_mut().for_each(|pace| pace.wake(now)),
            Event::StepFailed { .. } => {}
        }
        false
    }

    fn reached(&self) -> (usize, usize) {
        (self.changed, self.subjects)
    }

    fn line_after(&self) -> Option<usize> {
        Some(self.subjects.max(1))
    }

    fn words(&self, now: Instant) -> String {
        let done = if self.back { F::WORDS.back } else { F::WORDS.changed };
        let all = counted(self.subjects, F::WORDS.one, F::WORDS.many);
        let mut words = format!("{} of {all} {done}", self.changed);
        let left = self.subjects.saturating_sub(self.changed);
        let here = self.changed.saturating_sub(self.before);
        let pace = self.pace.as_ref().and_then(|pace| pace.of(here, left, now)).filter(|_| left > 0);
        if let Some((per_second, left)) = pace {
            let _ = write!(words, ", {per_second:.1} a second, {} left", in_words(left));
        }
        words
    }

    fn fields(&self, _now: Instant) -> Vec<(&'static str, Value)> {
        let mut fields = vec![
            ("direction", Value::from(if self.back { "back" } else { "forward" })),
            ("stage", Value::from(self.stage.as_str())),
        ];
        fields.extend(self.figures.fields());
        let counts = [self.subjects, self.changed, self.skipped].map(Value::from);
        fields.extend(F::WORDS.fields.into_iter().zip(counts));
        fields
    }

    fn batch(&self) -> usize {
        self.batch
    }

    fn stage_title(&self) -> String {
        self.title.clone()
    }

    fn lingers(&self, now: Instant) -> Option<(String, Duration)> {
        Some((self.title.clone(), self.waits_until?.saturating_duration_since(now)))
    }

    fn write(&self, page: &mut Page) {
        let SubjectWords { metrics, many, .. } = F::WORDS;
        let stage = [("operation", self.operation.as_str()), ("stage", self.stage.as_str())];
        page.info(&format!("{metrics}_stage_info"), "The current stage.", &stage);
        self.figures.write(page);
        let subjects = format!("{metrics}_{many}");
        page.family(&subjects, "gauge", &format!("{} of the current stage, by state.", capital(many)));
        page.sample(&subjects, &[("state", "changed")], self.changed);
        page.sample(&subjects, &[("state", "waiting")], self.subjects.saturating_sub(self.changed));
        let skipped = format!("{} that were skipped.", capital(many));
        page.gauge(&format!("{subjects}_skipped"), &skipped, self.skipped);
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::operation::StepId;
    use crate::session::metrics::text;
    use crate::session::progress::SharedProgress;

    struct Maps;

    impl StageFigures for Maps {
        const WORDS: SubjectWords = SubjectWords {
            one: "map",
            many: "maps",
            fields: ["maps", "maps_changed", "maps_skipped"],
            changed: "created",
            back: "deleted",
            metrics: "netsurgeon_toy",
        };

        fn changes_subjects(&self, stage: &Stage) -> bool {
            stage.name == "create"
        }
    }

    #[test]
    fn rate_counts_this_run_without_gates_and_waits_belong_to_no_subject() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut progress = StageProgress::new("op", 8, Maps);
        let stage =
            |name: &str| Stage { index: 0, name: name.into(), batch: Some(1), title: "Create".into() };
        let (create, ready) = (stage("create"), stage("ready"));
        progress.note(&Event::StageStarted { stage: &create, steps: 10, back: false }, start);
        let id = StepId("create/one".into());
        let step = |subject: &'static str| Told {
            id: &id,
            subject,
            wait: None,
            manual: None,
            is_for_the_way_back: false,
        };
        for _ in 0..4 {
            progress.note(&Event::StepSkipped { step: step("one") }, start);
        }
        assert_eq!(progress.words(start), "4 of 10 maps created");
        progress.note(&Event::CheckpointAsked { stage: &create }, at(1));
        progress.note(&Event::CheckpointAnswered, at(101));
        assert!(progress.note(&Event::StepDone { step: step("one") }, at(102)));
        assert_eq!(progress.words(at(102)), "5 of 10 maps created, 0.5 a second, 10 s left");
        progress.note(&Event::LeftAlone { step: &id, reason: "changed" }, at(102));
        progress.note(&Event::StageStarted { stage: &ready, steps: 1, back: false }, at(103));
        assert!(!progress.note(&Event::StepDone { step: step("") }, at(103)));
        let fields: Vec<_> =
            progress.fields(at(103)).into_iter().map(|(name, value)| (name, value.to_string())).collect();
        let expected = [
            ("direction", "\"forward\""),
            ("stage", "\"ready\""),
            ("maps", "10"),
            ("maps_changed", "5"),
            ("maps_skipped", "1"),
        ];
        assert_eq!(fields, expected.map(|(name, value)| (name, value.to_string())));
        let progress: SharedProgress = Arc::new(Mutex::new(progress));
        let text = text::page(Some(&progress), 0);
        for line in [
            "netsurgeon_toy_stage_info{operation=\"op\",stage=\"ready\"} 1",
            "netsurgeon_toy_maps{state=\"waiting\"} 5",
            "netsurgeon_toy_maps_skipped 1",
            "# HELP netsurgeon_toy_maps Maps of the current stage, by state.",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in {text}");
        }
    }
}
