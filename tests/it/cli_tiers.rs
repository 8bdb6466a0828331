//! Tiers on the command line: the flags, the file, the program that is run, and the messages for mistakes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::program::{run, told};

const PLAN: &str = "renumber plan --snapshot testdata/objects.snapshot.db --to 10.200.0.0/16";

fn script(folder: &Path, body: &str) -> PathBuf {
    let path = folder.join("tier-of");
    std::fs::write(&path, format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Plans with a program for tiers; returns exit status, stdout and stderr.
fn planned(body: &str, more: &str) -> (Option<i32>, Vec<u8>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = script(folder.path(), body);
    let output = run(&format!("{PLAN} --tiers dev,web --tier-command {} {more}", path.display()));
    (output.status.code(), output.stdout.clone(), told(&output))
}

#[test]
fn tier_command_runs_once_per_service() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("asked");
    let body = format!(
        "echo \"$# $1/$2\" >> {}\ncase $1 in shop) echo ' web '; echo more;; *) echo dev;; esac",
        log.display()
    );
    let (status, stdout, told) = planned(&body, "-o json");
    assert_eq!(status, Some(0), "{told}");
    let plan: Value = serde_json::from_slice(&stdout).unwrap();
    let moves = plan["moves"].as_array().unwrap();
    for one in moves {
        let tier = match (&one["turn"], one["namespace"].as_str()) {
            (Value::String(_), _) => None,
            (_, Some("shop")) => Some("web"),
            _ => Some("dev"),
        };
        assert_eq!(one["tier"].as_str(), tier, "{one}");
    }
    let mut asked: Vec<String> = std::fs::read_to_string(&log).unwrap().lines().map(String::from).collect();
    asked.sort();
    let open = moves.iter().filter(|one| one["turn"].is_null());
    let mut expected: Vec<String> = open
        .map(|one| format!("2 {}/{}", one["namespace"].as_str().unwrap(), one["name"].as_str().unwrap()))
        .collect();
    expected.sort();
    assert_eq!(asked, expected);
    let (_, _, told) = planned("echo dev", "");
    assert!(told.contains("TIER") && told.contains("tiers, least critical first: dev ("), "{told}");
}

#[test]
fn plan_fails_when_tier_command_fails_or_times_out() {
    for (body, more, words) in [
        ("echo no such team >&2; exit 3", "", "failed with exit status: 3: no such team"),
        ("echo gold; echo rich >&2", "", "printed `gold`, which is not one of the tiers: rich"),
        ("sleep 600 & echo dev; wait", "--tier-command-timeout 1", "gave no answer within 1 s"),
        ("exec sleep 600", "--tier-command-timeout 1", "gave no answer within 1 s"),
        ("kill -9 $$", "", "failed with signal: 9"),
        ("true", "", "Services have no tier"),
    ] {
        let (status, stdout, told) = planned(body, more);
        assert_eq!(status, Some(1), "{body}: {told}");
        assert!(told.contains(words) && stdout.is_empty(), "{body}: {told}");
        assert!(body == "true" || told.contains("the tier of Service `"), "{told}");
    }
    let (status, _, said) = planned("true", "--default-tier web");
    assert_eq!(status, Some(0), "{said}");
    let output = run(&format!("{PLAN} --tiers dev --tier-command /nowhere/tier-of"));
    assert!(told(&output).contains("cannot be run: No such file"), "{}", told(&output));
}

#[test]
fn contradicting_tier_flags_are_wrong_usage() {
    for (flags, words) in [
        ("--tiers dev,dev --tier-label x", "is named twice"),
        ("--tiers dev,,web --tier-label x", "is not a valid name"),
        ("--tiers api-backends --tier-label x", "is the built-in tier"),
        ("--tiers dev", "required"),
        ("--tier-label x", "--tiers"),
        ("--tiers dev --tier-label x --tier-annotation y", "cannot be used with"),
        ("--tiers dev --tier-label x --default-tier web", "is not one of the tiers"),
    ] {
        let output = run(&format!("{PLAN} {flags}"));
        let told = told(&output);
        assert_eq!(output.status.code(), Some(2), "{flags}: {told}");
        assert!(told.contains(words), "{flags}: {told}");
    }
}

#[test]
fn rehearsal_uses_tiers() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(folder.path(), "case $2 in *a*) echo web;; *) echo dev;; esac");
    let command = format!(
        "rehearse testdata/objects.snapshot.db --to 10.200.0.0/16 --tiers dev,web --tier-command {} -o json",
        path.display()
    );
    let output = run(&command);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((value["rollback"].as_str(), value["batches"].as_u64()), (Some("identical"), Some(4)));
}

/// Plans with a file of tiers; returns exit status, stdout and stderr.
fn listed(lines: &str, more: &str) -> (Option<i32>, Vec<u8>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiers.txt");
    std::fs::write(&path, lines).unwrap();
    let output = run(&format!("{PLAN} --tiers dev,web --tier-file {} {more}", path.display()));
    (output.status.code(), output.stdout.clone(), told(&output))
}

#[test]
fn tier_file_orders_services_and_reports_unknown_names() {
    let lines = "# ours\nshop/* web\nshop/cart\tdev # alone\nshop/crat web\nnowhere/* dev\n";
    let (status, stdout, said) = listed(lines, "--default-tier dev -o json");
    assert_eq!(status, Some(0), "{said}");
    let plan: Value = serde_json::from_slice(&stdout).unwrap();
    let tier = |name: &str| plan["moves"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
    assert_eq!(tier("cart")["tier"], "dev");
    let shop = plan["moves"].as_array().unwrap().iter().filter(|one| one["namespace"] == "shop");
    assert!(shop.filter(|one| one["name"] != "cart").all(|one| one["tier"] == "web"), "{plan}");
    let words = "2 of its lines match no Service of this cluster; the first is `nowhere/*`";
    assert!(said.contains(words), "{said}");
    let (_, _, said) = listed("shop/* web", "--default-tier dev");
    assert!(!said.contains("no Service of this cluster"), "{said}");
    let (_, _, said) = listed("shop/* web\nshop/crat dev", "--default-tier dev");
    assert!(
        said.contains("1 of its lines matches no Service of this cluster; the first is `shop/crat`"),
        "{said}"
    );
}

#[test]
fn tier_file_errors_name_the_line() {
    for (lines, code, words) in [
        ("shop/* web\n\nshop/cart gold", 2, "line 3 of `"),
        ("shop/cart gold", 2, "`gold` is not one of the tiers"),
        ("shop/cart", 2, "does not assign a tier: `shop/cart`"),
        ("shop dev", 2, "does not assign a tier: `shop dev`"),
        ("shop/c* dev", 2, "does not assign a tier: `shop/c* dev`"),
        ("*/* dev", 2, "does not assign a tier: `*/* dev`"),
        ("a/b/c dev", 2, "does not assign a tier: `a/b/c dev`"),
        ("a/b dev x", 2, "does not assign a tier: `a/b dev x`"),
        ("shop/* web\nshop/* dev", 2, "`shop/*` already has a tier"),
        ("shop/* web", 1, "have no tier; the first is `"),
    ] {
        let (status, stdout, said) = listed(lines, "");
        assert_eq!((status, stdout.is_empty()), (Some(code), true), "{lines}: {said}");
        assert!(said.contains(words), "{lines}: {said}");
    }
    let output = run(&format!("{PLAN} --tiers dev --tier-file /nowhere/tiers.txt"));
    assert!(!output.status.success() && told(&output).contains("cannot read `/nowhere/tiers.txt`"));
}

#[test]
fn digest_of_saved_plan_covers_tiers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.json");
    let words = format!("{PLAN} --tiers web --tier-label none --default-tier web --save {}", file.display());
    let first = run(&words);
    assert!(first.status.success(), "{}", told(&first));
    let text = std::fs::read_to_string(&file).unwrap();
    let plan =
        netsurgeon::operation::Plan::<netsurgeon::renumber::Renumbering>::read(&file).expect("it is valid");
    assert_eq!(plan.work.tiers, ["web"]);
    for (from, to) in [(r#""tier": "web""#, r#""tier": "dev""#), (r#""tiers": ["#, r#""tiers": ["dev","#)] {
        assert!(text.contains(from), "{from}");
        std::fs::write(&file, text.replacen(from, to, 1)).unwrap();
        let read = netsurgeon::operation::Plan::<netsurgeon::renumber::Renumbering>::read(&file);
        assert!(read.is_err(), "{from} was changed");
    }
    // A saved plan is applied as it is: tier flags beside it would change it.
    let output = run("renumber apply --plan p.json --tiers dev --tier-label x");
    assert_eq!(output.status.code(), Some(2));
    assert!(told(&output).contains("cannot be used with"), "{}", told(&output));
}

#[test]
fn rehearsal_prints_tiers() {
    let words = "rehearse testdata/objects.snapshot.db --to 10.200.0.0/16 --tiers dev,web --tier-label none \
                 --default-tier web";
    let output = run(words);
    let said = told(&output);
    assert!(said.contains("  tiers         dev (0), web (23)"), "{said}");
    let value: Value = serde_json::from_slice(&run(&format!("{words} -o json")).stdout).unwrap();
    let (dev, web) = (serde_json::json!({"name": "dev", "services": 0}), &value["tiers"][1]);
    assert_eq!((&value["tiers"][0], web["services"].as_u64()), (&dev, Some(23)));
    let without: Value = serde_json::from_slice(
        &run("rehearse testdata/objects.snapshot.db --to 10.200.0.0/16 -o json").stdout,
    )
    .unwrap();
    assert_eq!(without["tiers"], serde_json::json!([]));
}
