//! What `renumber retire` and `renumber rollback` print at their end.

use serde::Serialize;

use crate::cli::Context;
use crate::operation::{Report, Status, Waiver};
use crate::renumber::run::Ongoing;
use crate::session::Failure;

/// The output of `renumber retire -o json` and `renumber rollback -o json`.
#[derive(Serialize)]
pub(super) struct EndOutput<'a> {
    pub(super) version: u8,
    pub(super) operation: &'a str,
    /// `done`, `rolled-back`, `paused` or `stuck`.
    pub(super) status: Status,
    pub(super) steps: usize,
    pub(super) stuck: Vec<String>,
    /// The subjects that the operator has given up.
    pub(super) given_up: Vec<Waiver>,
}

pub(super) fn print(context: &Context, ongoing: &Ongoing, report: &Report) -> Result<(), Failure> {
    let stuck = report.stuck.iter().map(|stuck| format!("{}: {}", stuck.step, stuck.reason)).collect();
    let status = ongoing.summary.status;
    let (operation, given_up) = (&ongoing.operation, ongoing.summary.given_up.clone());
    let output = EndOutput { version: 1, operation, status, steps: report.done, stuck, given_up };
    context.output.data(&output, |_| String::new())
}

/// Reports the subjects that were given up.
pub(super) fn say_given_up(context: &Context, ongoing: &Ongoing) {
    for waiver in &ongoing.summary.given_up {
        context.output.note(&format!("`{}`: {waiver}", waiver.subject));
    }
}
