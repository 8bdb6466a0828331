//! Manual steps by their names: which an operation has, and which of them are open.

use super::{LiveArgs, Ongoing};
use crate::cli::failure::Failure;
use crate::operation::{Manual, State, StepId, Work};
use crate::renumber::live::MANUAL_STEPS;
use crate::renumber::{Action, Renumbering};

/// Returns the manual steps of a renumbering. No batch has one.
fn manual_steps(work: &Renumbering) -> Vec<(StepId, Manual)> {
    let stages = work.stages().into_iter().filter(|stage| stage.batch.is_none());
    let steps = stages.flat_map(|stage| work.steps(&stage));
    let manual = steps.filter_map(|step| match step.action {
        Action::Manual(manual) => Some((step.id, manual)),
        _ => None,
    });
    manual.collect()
}

impl LiveArgs {
    /// Refuses to confirm what no renumbering has; names the manual steps of this plan, of which none was started.
    pub fn confirm_only_planned(&self, work: &Renumbering) -> Result<(), Failure> {
        let names: Vec<String> = manual_steps(work).into_iter().map(|(_, manual)| manual.name).collect();
        self.confirm_only(&MANUAL_STEPS, &names)
    }

    /// Refuses to confirm what no renumbering has; names the manual steps that are open. What was confirmed before, or is no
    /// step of this plan, may be confirmed: scripts give the same names every time.
    pub fn confirm_only_known(&self, ongoing: &Ongoing, back: bool) -> Result<(), Failure> {
        let is_open = |(step, manual): &(StepId, Manual)| match ongoing.journal.state(step) {
            Some(State::Done) => back && manual.undo.is_some(),
            None | Some(State::Failed) => !back,
            Some(State::UndoDone) => false,
            Some(_) => !back || manual.undo.is_some(),
        };
        let open = manual_steps(&ongoing.plan.work).into_iter().filter(|step| is_open(step));
        let open: Vec<String> = open.map(|(_, manual)| manual.name).collect();
        self.confirm_only(&MANUAL_STEPS, &open)
    }

    /// Refuses to confirm anything but these; `open` are those that may be open.
    pub fn confirm_only(&self, known: &[&str], open: &[String]) -> Result<(), Failure> {
        let unknown = self.confirm.iter().find(|name| !known.contains(&name.as_str()));
        let Some(name) = unknown else { return Ok(()) };
        let failure = Failure::usage(format!("`--confirm {name}`: there is no manual step of that name"));
        if open.is_empty() {
            return Err(failure.hint("no manual step is open: leave `--confirm` out"));
        }
        let list = open.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        Err(failure.hint(format!("open manual steps: {list}")))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        live: LiveArgs,
    }

    fn refused(words: &str, open: &[String]) -> Option<Failure> {
        let words = ["x"].into_iter().chain(words.split_whitespace());
        Words::try_parse_from(words).expect("words").live.confirm_only(&MANUAL_STEPS, open).err()
    }

    #[test]
    fn a_name_of_no_manual_step_is_refused_with_those_that_are_open() {
        let open = ["flags".to_string(), "soak".to_string()];
        assert!(refused("", &open).is_none());
        assert!(refused("--confirm flags --confirm certificates", &open).is_none());
        let failure = refused("--confirm flags --confirm flgas", &open).expect("a refusal");
        assert_eq!(failure.kind, crate::cli::Kind::Usage);
        assert!(failure.error.to_string().contains("`--confirm flgas`"), "{}", failure.error);
        assert_eq!(failure.hints, ["open manual steps: `flags`, `soak`"]);
        let failure = refused("--confirm close-range", &[]).expect("a refusal");
        assert_eq!(failure.hints, ["no manual step is open: leave `--confirm` out"]);
    }
}
