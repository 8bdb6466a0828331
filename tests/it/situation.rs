//! What the operator learns about an operation, wherever it stopped: facts and commands.

use netsurgeon::operation::{Status, Summary, Work as _};
use netsurgeon::renumber::run::situation::Situation;

use crate::harness::Bench;
use crate::saboteur::{Sabotage, Saboteur};

fn summary(status: Status) -> Summary {
    Summary { kind: "renumber".into(), status, ..Summary::default() }
}

async fn situation(bench: &Bench, store: &Saboteur, summary: &Summary) -> Situation {
    Situation::of("op", &bench.plan.work, &bench.journal(store).await, summary, false)
}

fn newcomers() -> Vec<String> {
    vec!["Service `default/later`".to_string()]
}

/// Everything that is printed about the operation.
fn said(situation: &Situation) -> String {
    let words = [Some(situation.words()), Some(situation.progress()), Some(situation.held())];
    let hints = [situation.next(), situation.rollback(), situation.rollback_hint()];
    words.into_iter().chain(hints).flatten().collect::<Vec<_>>().join("\n")
}

/// After the point of no return no rollback is offered, and no retired address is reported as held.
fn assert_only_forward(situation: &Situation, context: &str) {
    let said = said(situation);
    assert!(situation.past_no_return && situation.rollback().is_none(), "{context}: {said}");
    assert!(!said.contains("rollback") && !said.contains("back: `"), "{context}: {said}");
    assert!(said.contains("point of no return"), "{context}: {said}");
    assert_eq!(situation.next().as_deref(), Some("netsurgeon renumber retire --operation op"), "{context}");
    assert_eq!(situation.clone().with_newcomers(&newcomers()), *situation, "{context}");
    let (held, all) = (situation.phases.held, situation.phases.retired + situation.phases.held);
    let answers =
        if held == 0 { "no old address is held".to_string() } else { format!("{held} old address") };
    assert!(situation.held().starts_with(&answers), "{context}: {said}");
    assert!(
        said.contains(&format!("{} of {all} Services retired", situation.phases.retired)),
        "{context}: {said}"
    );
}

/// One of each era, and one in which Services were swept.
async fn of_each_era() -> Vec<Bench> {
    let mut all = vec![Bench::swept("objects", "10.200.0.0/16").await];
    for fixture in ["objects", "dualwrite", "bitmap"] {
        all.push(Bench::of(fixture, "10.200.0.0/16").await);
    }
    all
}

#[tokio::test]
async fn stopped_operation_offers_resume_and_rollback() {
    for bench in of_each_era().await {
        let (store, stages) = (bench.fresh().await, bench.plan.work.stages());
        let (soak, no_return) = (bench.plan.work.soak_stage().unwrap(), bench.no_return().unwrap());
        for until in 0..=stages.len() {
            bench.run(&store, Some(until)).await.expect("a run");
            let found = situation(&bench, &store, &summary(Status::Stopped)).await;
            let context = format!("{} before stage {until}", bench.name);
            assert!(!found.back, "{context}");
            if until > no_return {
                assert_only_forward(&found, &context);
                continue;
            }
            let next = found.next().unwrap();
            // A stage may have steps only for the rollback.
            let is_left = stages.iter().take(soak).skip(until).flat_map(|stage| bench.plan.work.steps(stage));
            let is_left = is_left.into_iter().any(|step| !step.is_for_the_way_back());
            let expected = if is_left { "operation resume op" } else { "renumber retire --operation op" };
            let expected = format!("netsurgeon {expected}");
            assert_eq!(next, expected, "{context}");
            assert_eq!(found.rollback().as_deref(), Some("netsurgeon operation rollback op"), "{context}");
            let moved = found.phases.held;
            let all = moved + found.phases.waiting;
            assert_eq!(found.progress(), format!("{moved} of {all} Services moved"), "{context}");
            let held = found.held();
            assert!(
                held.contains(&format!("{moved} old address"))
                    || moved == 0 && held == "every Service has its old address",
                "{context}: {held}"
            );
        }
    }
}

#[tokio::test]
async fn operation_stopped_while_retiring_offers_only_completion() {
    for bench in Bench::all().await {
        let store = bench.fresh().await;
        let no_return = bench.no_return().unwrap();
        bench.run(&store, Some(no_return + 1)).await.expect("a run");
        for (commit, status) in [(2, Status::Stopped), (3, Status::Running), (1, Status::Paused)] {
            store.arm(Sabotage::Stop(commit));
            bench.run(&store, Some(no_return + 2)).await.expect_err("it stops");
            store.arm(Sabotage::None);
            let found = situation(&bench, &store, &summary(status)).await;
            assert!(found.phases.retired > 0 && found.phases.held > 0, "{}: {:?}", bench.name, found.phases);
            assert_only_forward(&found, &bench.name);
        }
    }
}

#[tokio::test]
async fn hint_names_command_that_accepts_the_confirmation() {
    for bench in Bench::all().await {
        let store = bench.fresh().await;
        bench.run(&store, bench.plan.work.soak_stage()).await.expect("a run");
        let waiting =
            |step: &str| Summary { manual_step: Some(step.into()), ..summary(Status::WaitingForManualStep) };
        let found = situation(&bench, &store, &waiting("soak")).await;
        assert_eq!(found.words(), "waiting for manual step `soak`");
        let with_newcomers = found.clone().with_newcomers(&newcomers());
        assert_eq!(with_newcomers.next().as_deref(), Some("netsurgeon operation resume op"));
        let retire = "netsurgeon renumber retire --operation op --confirm soak";
        assert_eq!(found.next().as_deref(), Some(retire), "{}", bench.name);
        let found = situation(&bench, &bench.fresh().await, &waiting("flags")).await;
        assert_eq!(found.next().as_deref(), Some("netsurgeon operation resume op --confirm flags"));
    }
}

#[tokio::test]
async fn interrupted_rollback_offers_only_rollback() {
    for bench in Bench::all().await {
        let store = bench.fresh().await;
        bench.run(&store, bench.plan.work.soak_stage()).await.expect("a run");
        store.arm(Sabotage::Stop(4));
        bench.unwind(&store).await.expect_err("it stops");
        store.arm(Sabotage::None);
        let back = Summary { back: true, ..summary(Status::RollingBack) };
        let found = situation(&bench, &store, &back).await;
        assert!(found.back && found.status == Status::Interrupted, "{found:?}");
        assert_eq!(found.words(), "interrupted while rolling back");
        assert_eq!(found.next().as_deref(), Some("netsurgeon operation rollback op"), "{}", bench.name);
        assert_eq!((found.rollback(), found.rollback_hint()), (None, None));
        assert!(found.progress().ends_with("their old addresses"), "{}", found.progress());
    }
}

/// At the first pause of a rollback nothing is rolled back yet.
#[tokio::test]
async fn rollback_paused_at_first_step_is_resumed_as_rollback() {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let store = bench.fresh().await;
    bench.run(&store, bench.plan.work.soak_stage()).await.expect("a run");
    let (mut back, waiting) = (summary(Status::Soaking), Status::WaitingForManualStep);
    back.set_out(true, 7);
    let back = Summary { status: waiting, manual_step: Some("flags".into()), ..back };
    let found = situation(&bench, &store, &back).await;
    assert_eq!(found.words(), "waiting for manual step `flags` while rolling back");
    assert_eq!(found.next().as_deref(), Some("netsurgeon operation rollback op --confirm flags"));
}

#[tokio::test]
async fn rollback_names_old_range_at_flags() {
    for bench in Bench::all().await {
        let work = &bench.plan.work;
        let flags = work.way_back().into_iter().find(|stage| stage.name == "flags").expect("a stage");
        let old = work.flag_before.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        assert!(flags.title.contains(&old), "{}: {}", bench.name, flags.title);
        let new = work.to.to_string();
        assert!(!flags.title.contains(&new), "{}: {}", bench.name, flags.title);
        let forward = work.stages().into_iter().find(|stage| stage.name == "flags").expect("a stage");
        assert!(forward.title.contains(&new), "{}: {}", bench.name, forward.title);
    }
}
