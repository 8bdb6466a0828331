//! `operation report`: the page of an operation that ran in memory. tests/live shows one to a browser.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use netsurgeon::operation::{
    Ambient, Answer, Applied, Doing, Environment, Executor, Journal, Manual, Noted, Observed, Plan, Records,
    Run, Silent, State, Status, StepFault, StepId, Summary, Wait, Work,
};
use netsurgeon::renumber::simulate::Simulation;
use netsurgeon::renumber::{Action, Awaited, Effect, Move, Renumbering};
use netsurgeon::report::{Subject, page};
use netsurgeon::store::Revision;
use netsurgeon::store::memory::MemoryStore;
use netsurgeon::survey::{Layout, Survey};
use netsurgeon::wire::edit::{self, FieldChange};
use netsurgeon::wire::{Field, FieldEdit, Value};

use crate::harness::Bench;
use crate::saboteur::{Sabotage, Saboteur};

const STARTED: i64 = 1_800_000_000;
const HOUR: i64 = 3600;

/// A clock that advances by a second with every call.
struct Clock(AtomicI64);

impl Clock {
    fn new() -> Self {
        Self(AtomicI64::new(STARTED))
    }
}

impl Ambient for Clock {
    fn now(&self) -> i64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn uid(&self) -> String {
        "00000000-0000-4000-8000-000000000000".to_string()
    }
}

/// A rehearsal in which every manual step takes three hours.
struct Slow<'a>(Simulation<'a>, &'a Clock);

#[async_trait]
impl Environment<Effect> for Slow<'_> {
    async fn apply(&self, doing: &Doing<'_, Effect>) -> Result<Applied, StepFault> {
        self.0.apply(doing).await
    }

    async fn observe(&self, doing: &Doing<'_, Effect>) -> Result<Observed, StepFault> {
        self.0.observe(doing).await
    }

    async fn wait(&self, wait: &Wait<Awaited>, records: Records<'_>) -> Result<(), StepFault> {
        self.0.wait(wait, records).await
    }

    async fn manual(&self, manual: &Manual, back: bool) -> Result<Answer, StepFault> {
        self.1.0.fetch_add(3 * HOUR, Ordering::SeqCst);
        self.0.manual(manual, back).await
    }
}

fn summary(status: Status) -> Summary {
    Summary {
        kind: "renumber".into(),
        status,
        started: STARTED,
        holder: Some("alice@cp-1".into()),
        ended: Some(STARTED + 40 * HOUR),
        ..Summary::default()
    }
}

async fn page_of(bench: &Bench, store: &Saboteur, status: Status) -> String {
    let survey = Survey::read(store, &Layout::default(), None).await.expect("a survey");
    let journal = bench.journal(store).await;
    let (operation, summary) = ("renumber-20270115T080000Z-3f2a", summary(status));
    let subject = Subject {
        operation,
        plan: &bench.plan,
        summary: &summary,
        journal: &journal,
        survey: &survey,
        is_leased: false,
        later: None,
    };
    let written = page(&subject);
    keep(&format!("{}-{}", status.name(), bench.name.replace(['/', ' ', ':'], "-")), &written);
    assert_eq!(written, page(&subject), "the same journal, the same page");
    written
}

/// Writes the page to a file, for a person to open.
fn keep(name: &str, page: &str) {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("report-{name}.html"));
    std::fs::write(file, page).expect("a file");
}

async fn carried_out(bench: &Bench, until: Option<usize>) -> Saboteur {
    let (store, clock) = (bench.fresh().await, Clock::new());
    let slow = Slow(Simulation::new(&store, &bench.plan.work, &clock), &clock);
    let (mut journal, mut silent) = (bench.journal(&store).await, Silent);
    let ledger = journal.in_store(&store, &[]);
    let mut executor = Executor::new(&ledger, &slow, &clock, &mut silent, &mut journal);
    executor.run(&bench.plan.work, until).await.expect("a run");
    store
}

/// Checks that every element is closed in its order, and that the page loads and runs nothing.
fn check(page: &str) {
    // These two start before the style.
    let mut open = vec!["html", "head"];
    let body = page.split_once("</style>").expect("a style").1;
    for part in body.split('<').skip(1) {
        let (tag, _) = part.split_once('>').unwrap_or_else(|| panic!("no end: {part}"));
        let name = tag.split([' ', '\n', '/']).find(|word| !word.is_empty()).unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{part}");
        } else if !tag.ends_with('/') && name != "br" {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    for forbidden in
        ["<script", "<img", "<iframe", "<link", "<object", " src=", " href=", "url(", "@import", "://"]
    {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
}

fn rows(page: &str, candidate: &Move) -> bool {
    let name = format!("<span class=\"faint\">{}/</span>{}</td>", candidate.namespace, candidate.name);
    let addresses = format!(
        "<td><code>{}</code></td><td><code>{}</code></td>",
        candidate.old.join(", "),
        candidate.new.join(", ")
    );
    page.contains(&format!("{name}{addresses}"))
}

#[tokio::test]
async fn page_has_every_service_in_every_era() {
    for bench in Bench::all().await {
        let store = carried_out(&bench, bench.plan.work.soak_stage()).await;
        let page = page_of(&bench, &store, Status::Soaking).await;
        check(&page);
        for candidate in &bench.plan.work.moves {
            assert!(rows(&page, candidate), "{}: {}", bench.name, candidate.subject());
        }
        let moved = bench.plan.work.moves.len();
        assert_eq!(page.matches(">moved, old held<").count(), moved, "{}", bench.name);
        assert!(page.contains(">None: every Service matches the journal"), "{}", bench.name);
        assert!(page.contains(&bench.plan.digest) && page.contains("alice@cp-1"));
    }
}

#[tokio::test]
async fn manual_steps_are_shown_as_pauses() {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let store = carried_out(&bench, None).await;
    let page = page_of(&bench, &store, Status::Done).await;
    check(&page);
    let pauses: Vec<&str> =
        page.split("<h2>").find(|part| part.starts_with("Timeline")).unwrap().split("<tr>").skip(1).collect();
    let externals = ["snapshot", "certificates", "flags", "soak"];
    for name in externals {
        let row = pauses.iter().find(|row| row.contains(&format!("<code>{name}</code>")));
        let row = row.unwrap_or_else(|| panic!("{name} in {pauses:?}"));
        assert!(row.contains("<td>3 h</td>"), "{row}");
        assert!(page.contains("<rect class=\"others\" "), "the pause is drawn");
    }
    assert!(!page.contains("class=\"back\" x="), "no rollback is drawn");
    assert_eq!(page.matches(">moved, old retired<").count(), bench.plan.work.moves.len());
}

#[tokio::test]
async fn stuck_steps_come_first() {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let store = carried_out(&bench, bench.plan.work.soak_stage()).await;
    let candidate = &bench.plan.work.moves[0];
    let key = Layout::default().service(&candidate.namespace, &candidate.name);
    let value = netsurgeon::store::ReadStore::get(&store, &key).await.unwrap().unwrap().value;
    let edits = [
        FieldEdit { field: Field::cluster_ip(), change: FieldChange::Set(Value::Text("10.200.9.9".into())) },
        FieldEdit { field: Field::cluster_ips(), change: FieldChange::Set(Value::texts(&["10.200.9.9"])) },
    ];
    store.meddle(&key, edit::apply(&value, &edits).expect("an edit")).await;
    let clock = Clock(AtomicI64::new(STARTED + 21 * HOUR));
    let slow = Slow(Simulation::new(&store, &bench.plan.work, &clock), &clock);
    let (mut journal, mut silent) = (bench.journal(&store).await, Silent);
    let ledger = journal.in_store(&store, &[]);
    let mut executor = Executor::new(&ledger, &slow, &clock, &mut silent, &mut journal);
    let report = executor.unwind(&bench.plan.work).await.expect("the other Services are rolled back");
    assert!(!report.stuck.is_empty());
    let page = page_of(&bench, &store, Status::Stuck).await;
    check(&page);
    for stuck in &report.stuck {
        assert!(page.contains(&format!("<code>{}</code>", stuck.step)), "{}", stuck.step);
    }
    assert!(page.contains(">could not be undone<") && page.contains("moved-service-elsewhere"));
    let place = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}"));
    assert!(
        place("id=\"findings\"") < place("id=\"steps\"") && place("id=\"steps\"") < place("id=\"timeline\"")
    );
    assert!(page.contains("<rect class=\"back\" "), "the rollback is drawn");
}

/// Every third Service has the tier `<dev>`, the others `web`; the last two have none, as each moves alone.
fn in_tiers(bench: &Bench) -> Bench {
    let mut bench = bench.clone();
    let work = &mut bench.plan.work;
    work.tiers = ["<dev>", "none", "web"].map(Into::into).to_vec();
    let shared = work.moves.iter().take_while(|candidate| candidate.turn.is_any()).count();
    for (number, candidate) in work.moves.iter_mut().take(shared).enumerate() {
        candidate.tier = if number * 3 < shared { "<dev>".into() } else { "web".into() };
    }
    bench
}

#[tokio::test]
async fn tiers_are_above_their_batches_on_timeline() {
    let bench = in_tiers(&Bench::of("objects", "10.200.0.0/16").await);
    let batches = bench.plan.work.batches();
    assert_eq!(batches.len(), 2 + 3 + 2, "{batches:?}");
    let store = carried_out(&bench, bench.plan.work.flip_stage(3)).await;
    let page = page_of(&bench, &store, Status::Stopped).await;
    check(&page);
    let place = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what}"));
    let label = |text: &str| place(&format!(">{text}</text>"));
    assert!(label("tier &lt;dev&gt;") < label("batch 1 of 7") && label("batch 2 of 7") < label("tier web"));
    assert!(label("tier web") < label("batch 3 of 7"));
    assert_eq!(page.matches("<rect class=\"band\"").count(), 2);
    assert_eq!(page.matches("<rect class=\"tier\"").count(), 2);
    let table =
        page.split("<table class=\"tiers\">").nth(1).expect("a table").split("</table>").next().unwrap();
    let rows: Vec<&str> = table.split("<tr><td>").skip(1).collect();
    assert_eq!(rows.len(), 2, "only tiers with Services");
    assert!(rows[0].starts_with("&lt;dev&gt;</td><td>8 of 8</td><td>1 to 2</td><td><time>"), "{}", rows[0]);
    assert!(rows[1].starts_with("web</td><td>7 of 15</td><td>3 to 5</td><td><time>"), "{}", rows[1]);
    assert!(page.contains(">Tier</th>") && page.contains("<td>&lt;dev&gt;</td><td>external-ip</td>"));
    let clock = Clock(AtomicI64::new(STARTED + 21 * HOUR));
    let slow = Slow(Simulation::new(&store, &bench.plan.work, &clock), &clock);
    let (mut journal, mut silent) = (bench.journal(&store).await, Silent);
    let ledger = journal.in_store(&store, &[]);
    let mut executor = Executor::new(&ledger, &slow, &clock, &mut silent, &mut journal);
    executor.unwind(&bench.plan.work).await.expect("a rollback");
    let page = page_of(&bench, &store, Status::RolledBack).await;
    check(&page);
    let table =
        page.split("<table class=\"tiers\">").nth(1).expect("a table").split("</table>").next().unwrap();
    assert!(table.split("<tr><td>").skip(1).all(|row| row.matches("<time>").count() == 3), "{table}");
}

/// Pauses come from the recorded runs: a closed gate with its reason, a killed process, and no pause while a wait lasts for hours.
#[tokio::test]
async fn every_run_is_in_the_report() {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let store = MemoryStore::new();
    let mut journal = Journal::begin(&store, "c", "op", b"", summary(Status::Soaking), &[]).await.unwrap();
    let stages = bench.plan.work.stages();
    let until = bench.plan.work.soak_stage().expect("a soak");
    let mut time = STARTED;
    for (number, stage) in stages.iter().take(until).enumerate() {
        time = match number {
            2 => STARTED + 1100,
            // The first step of the third run, in the second in which that run starts.
            4 => STARTED + 2000,
            _ => time + 1,
        };
        for step in bench.plan.work.steps(stage).iter().filter(|step| !step.is_for_the_way_back()) {
            // A wait of two hours, while the process runs.
            time += i64::from(matches!(step.action, Action::Wait(_)) && number > 6) * 2 * HOUR;
            let (_, record) = journal.record(&step.id, State::Done, time, Noted::default()).unwrap();
            journal.recorded(&step.id, record, Revision(8));
        }
    }
    let run = |started, ended: Option<i64>| Run { started: STARTED + started, ended, ..Run::default() };
    let gate = "gate `http` is closed: HTTP status 503";
    let paused = Run {
        status: Some(Status::Paused),
        why: Some(gate.into()),
        exit: Some(6),
        ..run(0, Some(STARTED + 100))
    };
    let last = Run { status: Some(Status::Soaking), exit: Some(0), ..run(2000, Some(time)) };
    let runs = vec![paused, run(1000, None), last];
    let summary = Summary { runs, ..summary(Status::Soaking) };
    let survey = Survey::read(bench.base(), &Layout::default(), None).await.expect("a survey");
    let subject = Subject {
        operation: "renumber-20270115T080000Z-3f2a",
        plan: &bench.plan,
        summary: &summary,
        journal: &journal,
        survey: &survey,
        is_leased: false,
        later: None,
    };
    let page = page(&subject);
    keep("runs", &page);
    check(&page);
    let table = |class: &str| {
        let text = page.split(&format!("<table class=\"{class}\">")).nth(1).expect("a table");
        text.split("</table>").next().unwrap_or_default().split("<tr><td>").skip(1).collect::<Vec<_>>()
    };
    let (mut stops, runs) = (table("pauses"), table("runs"));
    stops.retain(|row| !row.contains("manual step"));
    assert_eq!((stops.len(), runs.len()), (2, 3), "{stops:?}");
    let facts = ["paused: gate <code>http</code> is closed: HTTP status 503", "the process was killed"];
    for (number, fact) in facts.into_iter().enumerate() {
        assert!(stops[number].contains(fact) && runs[number].contains(fact), "{fact}: {stops:?} {runs:?}");
    }
    assert!(stops.iter().all(|row| !row.contains(">0 s<")), "the time after a kill is a pause: {stops:?}");
    assert!(runs[0].contains("<td>6</td>") && runs[2].contains("soaking"), "{runs:?}");
}

const HOSTILE: [&str; 3] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'--></style><svg/onload=alert(1)>&\u{202e}",
];

/// Names come from the cluster, and error messages from any server.
#[tokio::test]
async fn names_and_errors_are_escaped() {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let mut work = bench.plan.work.clone();
    for (candidate, text) in work.moves.iter_mut().zip(HOSTILE.into_iter().cycle()) {
        candidate.name = text.into();
        candidate.namespace = text.into();
        candidate.hold_reason = text.into();
        candidate.old = vec![text.into()];
    }
    for skipped in &mut work.skipped {
        skipped.reason = HOSTILE[1].into();
        skipped.name = HOSTILE[0].into();
    }
    let plan = Plan::new(HOSTILE[0], Revision(7), work);
    let (store, survey) =
        (MemoryStore::new(), Survey::read(bench.base(), &Layout::default(), None).await.unwrap());
    let mut journal = Journal::begin(&store, "c", "op", b"", summary(Status::Stuck), &[]).await.unwrap();
    let step = StepId(format!("flip/{}", plan.work.moves[0].subject()));
    for (number, state, error) in [(0, State::Done, None), (1, State::UndoFailed, Some(HOSTILE[1]))] {
        let time = STARTED + number;
        let noted = Noted { error: error.map(str::to_string), ..Noted::default() };
        let (_, record) = journal.record(&step, state, time, noted).unwrap();
        journal.recorded(&step, record, Revision(8));
    }
    let summary = Summary {
        kind: HOSTILE[0].into(),
        manual_step: Some(HOSTILE[1].into()),
        holder: Some(HOSTILE[2].into()),
        ..summary(Status::WaitingForManualStep)
    };
    let (operation, is_leased) = (HOSTILE[1], false);
    let subject = Subject {
        operation,
        plan: &plan,
        summary: &summary,
        journal: &journal,
        survey: &survey,
        is_leased,
        later: None,
    };
    let page = page(&subject);
    // `check` checks the body: it would find a style that ends early.
    check(&page.replace(" src=x", ""));
    assert!(
        !page.contains(" onerror=alert(1)>") && !page.contains("<svg/onload") && !page.contains('\u{202e}')
    );
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && page.contains("\\u{202e}"));
    assert_eq!(page.matches("</style>").count(), 1);
}

/// A plan of so many Services, and the journal of its apply at a usual pace, killed once.
async fn large(count: usize) -> (Plan<Renumbering>, Journal) {
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let mut work = Renumbering { batch_size: 50, moves: Vec::new(), ..bench.plan.work.clone() };
    let first = bench.plan.work.moves.iter().find(|candidate| candidate.shadow.is_none()).expect("one");
    for number in 0..count {
        let mut candidate = first.clone();
        candidate.namespace = format!("team-{:03}", number / 37).as_str().into();
        candidate.name = format!("checkout-service-{number:05}").as_str().into();
        let address = |start: &str| format!("{start}.{}.{}", number / 250, number % 250 + 1);
        let (old, new) = (address("10.96"), address("10.200"));
        (candidate.old_address, candidate.new_address) = (old.parse().unwrap(), new.parse().unwrap());
        (candidate.old, candidate.new) = (vec![old.as_str().into()], vec![new.as_str().into()]);
        work.moves.push(candidate);
    }
    work.moves.extend(bench.plan.work.moves.iter().filter(|candidate| !candidate.turn.is_any()).cloned());
    let store = MemoryStore::new();
    let mut journal =
        Journal::begin(&store, "c", "op", b"", summary(Status::Soaking), &[]).await.expect("a journal");
    let plan = Plan::new(&bench.plan.header.cluster, Revision(7), work);
    let (mut time, until) = (STARTED, plan.work.soak_stage().expect("a soak"));
    for stage in plan.work.stages().iter().take(until) {
        // Killed in the middle, and resumed a while later.
        time += if stage.batch == Some(120) && stage.name == "barrier" { 17 * 60 } else { 0 };
        for (index, step) in plan.work.steps(stage).iter().enumerate() {
            time += match &step.action {
                Action::Manual(_) => 20 * 60,
                Action::Wait(_) => 2,
                _ => i64::from(index % 40 == 39),
            };
            if !step.is_for_the_way_back() {
                let (_, record) = journal
                    .record(&step.id, State::Done, time, Noted::default())
                    .expect("a legal transition");
                journal.recorded(&step.id, record, Revision(8));
            }
        }
    }
    (plan, journal)
}

#[tokio::test]
async fn page_of_ten_thousand_services_is_small() {
    let (plan, journal) = large(10_000).await;
    let bench = Bench::of("objects", "10.200.0.0/16").await;
    let mut survey = Survey::read(bench.base(), &Layout::default(), None).await.expect("a survey");
    // The cluster of the fixture has none of these Services, which would be thousands of findings.
    survey.services.clear();
    let summary = summary(Status::Soaking);
    let subject = Subject {
        operation: "renumber-20270115T080000Z-3f2a",
        plan: &plan,
        summary: &summary,
        journal: &journal,
        survey: &survey,
        is_leased: false,
        later: None,
    };
    let page = page(&subject);
    keep("large", &page);
    check(&page);
    assert!(page.len() < 8_000_000, "{} bytes", page.len());
    assert!(page.contains("<summary>All 10\u{202f}002 Services, by batch</summary>"));
    let before_details = page.split("<summary>All ").next().unwrap();
    assert!(!before_details.contains("team-099/"), "the table is collapsed");
    assert!(rows(&page, &plan.work.moves[9_999]));
    assert!(
        page.contains("and 9\u{202f}502 more"),
        "the list of findings is truncated, with the number of the others"
    );
}

/// The range is given back after the flags: the page of a rollback that was interrupted in between shows it.
#[tokio::test]
async fn rollback_stopped_after_flags_shows_their_stage() {
    let flags = StepId("manual/flags".into());
    for fixture in ["objects", "dualwrite"] {
        let bench = Bench::of(fixture, "10.200.0.0/16").await;
        let store = bench.fresh().await;
        bench.run(&store, bench.no_return()).await.expect("a run");
        for _ in 0..1000 {
            if bench.journal(&store).await.state(&flags) == Some(State::UndoDone) {
                break;
            }
            store.arm(Sabotage::Stop(2));
            bench.unwind(&store).await.expect_err("it stops");
            store.arm(Sabotage::None);
        }
        assert_eq!(bench.journal(&store).await.state(&flags), Some(State::UndoDone));
        let page = page_of(&bench, &store, Status::Interrupted).await;
        let next = page.split("Current or next stage").nth(1).expect("a row for the next stage");
        let next = next.split("</tr>").next().unwrap_or_default();
        assert!(next.contains("back: set the range of every API server"), "{fixture}: {next}");
    }
}
