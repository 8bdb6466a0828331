//! `--log-format json`: everything on stderr is one JSON object per line, of the documented shape; stdout is not affected.

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::program::run;

/// Runs netsurgeon; returns the exit status, stdout, and the lines of stderr.
fn logged(arguments: &str) -> (i32, String, Vec<Value>) {
    let output = run(arguments);
    let err = String::from_utf8(output.stderr).expect("UTF-8");
    let lines: Vec<Value> = err
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for line in &lines {
        let members: Vec<&String> = line.as_object().expect("an object").keys().collect();
        assert_eq!(members, ["time", "level", "message", "fields"], "{line}");
        let time = line["time"].as_str().expect("a time");
        assert!(OffsetDateTime::parse(time, &Rfc3339).is_ok() && time.ends_with('Z'), "{line}");
        assert!(
            ["error", "warn", "info", "debug", "trace"].contains(&line["level"].as_str().unwrap()),
            "{line}"
        );
        assert!(line["message"].is_string() && line["fields"]["kind"].is_string(), "{line}");
    }
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).expect("UTF-8"), lines)
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["fields"]["kind"].as_str()).collect()
}

#[test]
fn rehearsal_logs_its_stages() {
    let arguments = "rehearse testdata/objects.snapshot.db --to 10.200.0.0/16";
    let (status, out, lines) = logged(&format!("-v --log-format json {arguments}"));
    assert_eq!(status, 0);
    assert!(out.starts_with("Rehearsal: from 10.96.0.0/16 to 10.200.0.0/16\n"), "{out}");
    let flips: Vec<&Value> = lines.iter().filter(|line| line["fields"]["stage"] == "flip").collect();
    assert!(!flips.is_empty(), "{lines:?}");
    for flip in flips {
        let fields = &flip["fields"];
        assert!(fields["batch"].as_u64() >= Some(1) && fields["back"].is_boolean(), "{flip}");
        assert!(
            fields["kind"] == "log" && fields["target"].as_str().unwrap().starts_with("netsurgeon"),
            "{flip}"
        );
    }
    assert!(logged(&format!("--log-format json {arguments}")).2.is_empty(), "there are no messages");
}

#[test]
fn failure_and_each_hint_are_one_line() {
    let (status, out, lines) =
        logged("rehearse testdata/objects.snapshot.db --to 10.200.0.0/30 --log-format=json");
    assert_eq!((status, out.as_str()), (1, ""));
    assert_eq!(kinds(&lines), ["error", "hint"], "{lines:?}");
    assert_eq!((&lines[0]["level"], &lines[0]["fields"]["exit_status"]), (&"error".into(), &1.into()));
    assert_eq!(lines[1]["level"], "info");
}

#[test]
fn progress_and_notes_are_one_line_each() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.json");
    let (status, _, lines) = logged(&format!(
        "--log-format json renumber plan --snapshot testdata/objects.snapshot.db --to 10.200.0.0/16 --save {}",
        plan.display()
    ));
    assert_eq!((status, kinds(&lines)), (0, vec!["note", "progress"]), "{lines:?}");
    let said = lines[1]["message"].as_str().unwrap();
    assert!(
        said.contains('\n') && said.contains("25 Services move"),
        "one line, even with line breaks: {said}"
    );
}

#[test]
fn usage_error_is_one_line() {
    let (status, _, lines) = logged("--log-format json renumber plan --nonsense");
    assert_eq!((status, kinds(&lines)), (2, vec!["error"]), "{lines:?}");
    assert!(lines[0]["message"].as_str().unwrap().contains("--nonsense"), "{lines:?}");
}
