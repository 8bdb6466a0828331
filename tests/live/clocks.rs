//! The clock of the operator's host is wrong: dates in the cluster come from the cluster's clock, from the start to the end.
//!
//! The tests run the program with `faketime`, which changes only the wall clock of that process.

use std::process::Command;

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::kill_points::Lab;
use super::rig::cluster::Era;
use super::rig::run::{Run, run, says};
use super::serving_cluster::{ENDING, NEW_RANGE, command};

const DAY: i64 = 24 * 60 * 60;

/// Runs the program with a wall clock that differs by some days.
fn at_day(lab: &Lab, days: i64, words: &str) -> Run {
    let plain = command(&lab.cluster, words);
    let mut faked = Command::new("faketime");
    faked.env_clear().current_dir("/").args(["-m", "--exclude-monotonic", "-f", &format!("{days:+}d")]);
    faked.arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        faked.env(name, value.unwrap_or_default());
    }
    run(&format!("{words} # {days:+} days"), faked)
}

/// The ages of all IPAddresses, in days: negative if the creation time is in the future.
async fn ages(lab: &Lab) -> Vec<(String, i64)> {
    let now = OffsetDateTime::now_utc();
    let age = |object: Value| {
        let (name, created) =
            (object["metadata"]["name"].clone(), object["metadata"]["creationTimestamp"].clone());
        let created = OffsetDateTime::parse(created.as_str().expect("a time"), &Rfc3339).expect("RFC 3339");
        (name.as_str().unwrap_or_default().to_owned(), (now - created).whole_seconds().div_euclid(DAY))
    };
    let objects = lab.cluster.api.list("/apis/networking.k8s.io/v1/ipaddresses").await;
    objects.into_iter().map(age).collect()
}

/// Asserts that the dates are those of an operation on a host with the right clock: kept addresses are dated 60 days ahead, and no
/// address is older than this cluster.
async fn assert_dates(lab: &Lab, kept: usize) {
    let ages = ages(lab).await;
    let ahead = ages.iter().filter(|(_, age)| *age == -60).count();
    assert!(ages.iter().all(|(_, age)| [-60, 0].contains(age)), "{ages:?}");
    assert_eq!(ahead, kept, "{ages:?}");
}

#[tokio::test]
async fn wrong_clock_of_the_operator_dates_nothing() {
    let mut lab = Lab::start(Era::Objects).await;
    let snapshot = lab.cluster.directory().join("before.db").display().to_string();
    let apply = format!(
        "renumber apply --to {NEW_RANGE} --snapshot-to {snapshot} --yes --batch-size 3 --confirm certificates --gate-command /bin/false"
    );
    let paused = at_day(&lab, -61, &apply).expect(6);
    says(&paused.err, &["61 days behind", "clock"]);
    says(&paused.err, &["gate `command`"]);
    // The new addresses of all seven Services, and the old addresses of the first batch.
    assert_dates(&lab, 10).await;
    let operation = lab.operation().await.expect("an operation");

    let resume = format!("operation resume {operation} --take-over --no-gates");
    let paused = at_day(&lab, -100, &resume).expect(6);
    says(&paused.err, &["100 days behind", "clock"]);
    assert_dates(&lab, 14).await;
    lab.flag(NEW_RANGE).await;
    at_day(&lab, 90, &resume).expect(0);
    // The guard writes dates without the API, too.
    at_day(&lab, 100, "renumber guard --once --kubeconfig /none").expect(0);
    assert_dates(&lab, 14).await;
    at_day(&lab, 90, &format!("renumber retire --without-evidence --yes {ENDING}")).expect(0);
    assert_dates(&lab, 0).await;
}
