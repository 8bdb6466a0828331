//! Tests of the findings in single objects.

use std::collections::BTreeSet;

use super::*;
use crate::store::Revision;
use crate::survey::Ours;

fn audited(key: &str, value: &[u8]) -> (usize, Vec<Finding>, BTreeMap<&'static str, Counted>) {
    let old = Old::new(vec!["10.96.0.0/16".parse().unwrap(), "fd00:96::/112".parse().unwrap()]);
    let expected = Expected {
        held: BTreeSet::from([("10.96.0.7".parse().unwrap(), "shop/cart".into())]),
        given_up: None,
        ours: Ours {
            addresses: [("10.96.0.7".parse().unwrap(), ("shop".into(), "cart".into()))].into(),
            services: [("shop".into(), "h".into())].into(),
            closed: ["kubernetes".to_string()].into(),
        },
    };
    let mut audit = Audit::new(&Layout::default(), &old, &expected);
    let record = Record {
        key: key.as_bytes(),
        value,
        create_revision: Revision(1),
        mod_revision: Revision(1),
        version: 1,
        lease: 0,
    };
    audit.take(record);
    (audit.held, audit.findings, audit.unread)
}

fn found(key: &str, value: &str) -> Vec<(String, &'static str, Option<String>)> {
    let (_, findings, _) = audited(key, value.as_bytes());
    findings.into_iter().map(|finding| (finding.path, finding.place, finding.found)).collect()
}

fn one(path: &str, place: &'static str, found: &str) -> Vec<(String, &'static str, Option<String>)> {
    vec![(path.to_string(), place, Some(found.to_string()))]
}

#[test]
fn json_within_text_is_scanned_and_lines_are_counted() {
    let applied = r#"{"kind":"Service","metadata":{"name":"a","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"spec\":{\"clusterIP\":\"10.96.0.9\"}}\n"}}}"#;
    let way = "metadata.annotations[kubectl.kubernetes.io/last-applied-configuration].spec.clusterIP";
    assert_eq!(found("/registry/services/specs/a/a", applied), one(way, "last-applied-address", "10.96.0.9"));
    let config = r#"{"kind":"ConfigMap","metadata":{"name":"app","namespace":"x"},"data":{"a.yaml":"one: 1\ntwo: http://10.96.0.9:80/\n"}}"#;
    let (_, findings, _) = audited("/registry/configmaps/x/app", config.as_bytes());
    assert_eq!(
        (findings[0].line, findings[0].place, findings[0].path.as_str()),
        (Some(2), "config-map", "data[a.yaml]")
    );
}

#[test]
fn secrets_report_only_the_key() {
    // `url` is `10.96.0.77:5432,10.96.0.77` in base64. The annotation has the address in clear text.
    let secret = r#"{"kind":"Secret","metadata":{"name":"s","namespace":"x","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"stringData\":{\"b\":\"10.96.0.77\"}}"}},"data":{"url":"MTAuOTYuMC43Nzo1NDMyLDEwLjk2LjAuNzc="}}"#;
    let (_, findings, _) = audited("/registry/secrets/x/s", secret.as_bytes());
    let all = serde_json::to_string(&findings).unwrap();
    assert!(!all.contains("0.77") && !all.contains("MTAu"), "{all}");
    let paths: Vec<&str> = findings.iter().map(|finding| finding.path.as_str()).collect();
    assert_eq!(
        paths,
        ["metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]", "data[url]"]
    );
    assert!(findings.iter().all(|finding| finding.found.is_none()));
    // {"auths":{"10.96.0.77:5000":{}}}
    let registry = r#"{"kind":"Secret","metadata":{"name":"s"},"data":{".dockerconfigjson":"eyJhdXRocyI6eyIxMC45Ni4wLjc3OjUwMDAiOnt9fX0="}}"#;
    assert_eq!(
        found("/registry/secrets/x/s", registry),
        [("data[.dockerconfigjson]".to_string(), "secret", None)]
    );
}

/// The journal identifies the subjects of an operation; a label does not.
#[test]
fn subjects_of_an_operation_are_counted_not_reported() {
    let shadow = r#"{"kind":"Service","metadata":{"name":"h","namespace":"shop","labels":{"app.kubernetes.io/managed-by":"netsurgeon"}},"spec":{"clusterIP":"10.96.0.7"}}"#;
    let held = r#"{"kind":"Service","metadata":{"name":"cart","namespace":"shop"},"spec":{"clusterIP":"10.200.0.7","externalIPs":["10.96.0.7"]}}"#;
    let waiting = r#"{"kind":"Service","metadata":{"name":"cart","namespace":"shop"},"spec":{"clusterIP":"10.96.0.7"}}"#;
    let address = r#"{"kind":"IPAddress","metadata":{"name":"10.96.0.7"}}"#;
    let range =
        r#"{"kind":"ServiceCIDR","metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.96.0.0/16"]}}"#;
    for text in [shadow, held, waiting, address, range] {
        let (held, findings, _) = audited("/registry/x/shop/x", text.as_bytes());
        assert_eq!((held, findings.len()), (1, 0), "{findings:?}");
    }
    let path = "/registry/services/specs/shop/x";
    let other = held.replace("10.96.0.7", "10.96.0.8");
    assert_eq!(found(path, &other), one("spec.externalIPs[0]", "service-external-ip", "10.96.0.8"));
    let labelled = shadow.replace("\"h\"", "\"stranger\"").replace("10.96.0.7", "10.96.0.9");
    assert_eq!(found(path, &labelled), one("spec.clusterIP", "service-address", "10.96.0.9"));
}

#[test]
fn custom_resources_are_identified_by_their_group() {
    let custom = r#"{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"t"},"spec":{"list":[{"name":"a","at":"[fd00:96::5]:80"}]}}"#;
    assert_eq!(
        found("/registry/example.com/things/t", custom),
        one("spec.list[a].at", "custom-resource", "fd00:96::5")
    );
}

#[test]
fn unreadable_values_are_counted() {
    for (value, reason) in [
        (&b"k8s:enc:aescbc:v1:k:xx"[..], "encrypted"),
        (b"\xd9\xd9\xf7\xa1", "broken"),
        (b"\x01\x02", "broken"),
    ] {
        let (_, _, unread) = audited("/registry/pods/a/b", value);
        assert_eq!(unread[reason].count, 1, "{unread:?}");
    }
    let (_, findings, unread) = audited("/registry/pods/a/b", b"{\"a\": \"10.96.0.1\"");
    assert!(findings.len() == 1 && unread["broken"].count == 1, "broken values are scanned all the same");
    let (_, findings, unread) = audited("/registry/events/a/b", b"k8s:enc:aescbc:v1:k:10.96.0.1");
    assert!(findings.is_empty() && unread.is_empty(), "events are skipped");
}

#[test]
fn scan_time_is_linear_in_the_number_of_addresses() {
    let line =
        (0..40_000).map(|number| format!("10.96.{}.{}", number % 256, number / 256)).collect::<Vec<_>>();
    let old = Old::new(vec!["10.96.0.0/16".parse().unwrap()]);
    for separator in [",", "\n"] {
        let text = line.join(separator);
        let found = super::super::lines(&old, text.as_bytes());
        assert_eq!(found.len(), line.len());
        let last = if separator == "," { None } else { Some(line.len()) };
        assert_eq!(found.last().unwrap().line, last);
    }
}

/// A tenant's object can have any number of addresses.
#[test]
fn findings_of_one_kind_are_limited_to_ten_per_object() {
    let old = Old::new(vec!["10.96.0.0/16".parse().unwrap()]);
    let expected = Expected::default();
    let mut audit = Audit::new(&Layout::default(), &old, &expected);
    let name = "n".repeat(100_000);
    let value = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"many"}},"data":{{"{name}":"{}"}}}}"#,
        "10.96.0.1 ".repeat(140_000)
    );
    let record = Record {
        key: b"/registry/configmaps/x/many",
        value: value.as_bytes(),
        create_revision: Revision(1),
        mod_revision: Revision(1),
        version: 1,
        lease: 0,
    };
    audit.take(record);
    assert_eq!((audit.findings.len(), audit.not_listed.count), (10, 139_990));
    assert_eq!(audit.not_listed.keys, ["/registry/configmaps/x/many"]);
    assert!(
        audit.findings.iter().all(|finding| finding.path.len() < 400),
        "{}",
        audit.findings[0].path.len()
    );
}

/// A Role's name can be as long as an object (`ValidatePathSegmentName`, `pkg/api/validation/path/name.go`, apimachinery
/// v0.36.3).
#[test]
fn long_names_are_truncated() {
    let long = "x".repeat(400_000);
    let role = format!(
        r#"{{"kind":"Role","metadata":{{"name":"{long}","namespace":"{long}","annotations":{{"{long}":"10.96.0.9"}}}}}}"#
    );
    let (_, findings, _) = audited(&format!("/registry/roles/{long}"), role.as_bytes());
    let told = serde_json::to_string(&findings).unwrap();
    assert!(findings.len() == 1 && told.len() < 5000, "{}", told.len());
    assert!(told.contains("x…"), "{told}");
}

/// A value whose formatted text never ends, like a path with very long names.
struct Endless;

impl std::fmt::Display for Endless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        loop {
            f.write_str("x")?;
        }
    }
}

#[test]
fn formatting_stops_at_the_limit() {
    assert_eq!(object::shortened(&Endless, 500), format!("{}…", "x".repeat(500)));
    assert_eq!(object::shortened(&"äö", 500), "äö");
}
