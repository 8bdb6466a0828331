//! Writes the figures of a renumbering as metrics; docs/metrics.md lists the metrics.

use super::MoveProgress;
use crate::session::metrics::Page;

pub(super) fn operation(page: &mut Page, progress: &MoveProgress) {
    let goal = progress.goal.name();
    let labels = [("operation", progress.operation.as_str()), ("goal", goal)];
    page.info("netsurgeon_operation_info", "The current operation.", &labels);
    let stage = &progress.stage;
    let direction = if stage.back { "back" } else { "forward" };
    let labels = [("stage", stage.name.as_str()), ("direction", direction)];
    page.info("netsurgeon_stage_info", "The current stage.", &labels);
    page.gauge(
        "netsurgeon_batch",
        "Number of the current batch, starting at 1; 0 outside of batches.",
        stage.batch,
    );
    page.gauge("netsurgeon_batches", "Number of batches of the plan.", progress.batches);
    page.gauge(
        "netsurgeon_paused",
        "Whether the operation waits for a manual step.",
        u8::from(progress.paused),
    );
}

pub(super) fn counts(page: &mut Page, progress: &MoveProgress) {
    page.family("netsurgeon_services", "gauge", "Services of the plan, by phase.");
    let phases = progress.phases;
    let states = [("waiting", phases.waiting), ("held", phases.held), ("retired", phases.retired)];
    for (state, count) in states {
        page.sample("netsurgeon_services", &[("state", state)], count);
    }
    page.family("netsurgeon_steps_total", "counter", "Steps of this process, by outcome.");
    let steps = progress.steps;
    let outcomes = [
        ("done", steps.done),
        ("undone", steps.undone),
        ("skipped", steps.skipped),
        ("failed", steps.failed),
        ("left-alone", steps.left_alone),
    ];
    for (outcome, count) in outcomes {
        page.sample("netsurgeon_steps_total", &[("outcome", outcome)], count);
    }
}

pub(super) fn barriers(page: &mut Page, progress: &MoveProgress) {
    let waits = progress.barriers;
    let what = "Time spent waiting for every API server and every kube-proxy.";
    page.family("netsurgeon_barrier_seconds", "summary", what);
    page.sample("netsurgeon_barrier_seconds_sum", &[], waits.sum.as_secs_f64());
    page.sample("netsurgeon_barrier_seconds_count", &[], waits.count);
    let what = "Duration of the last wait; 0 before the first wait.";
    page.gauge("netsurgeon_barrier_last_seconds", what, waits.last.as_secs_f64());
}
