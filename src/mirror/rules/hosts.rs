//! Rules for host names: a second domain, or another domain, in the mirror.

use serde_json::{Value, json};

use super::kind_names::Kind;
use super::places::{Row, change_text, each, row};
use super::uses::Uses;
use crate::mirror::config::{Config, HostRule};

/// How a place contains host names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A list of names.
    List,
    /// The names of a certificate. A name that a wildcard of the list covers is not added.
    Certificate,
    /// One name. It can be replaced, and a second name does not fit.
    Single,
    /// Names separated by commas.
    Commas,
    /// A list of rules, each with one name and what it serves.
    Rules,
}

const INGRESSES: &[&str] = &["networking.k8s.io/ingresses"];
const ROUTES: &[&str] = &[
    "gateway.networking.k8s.io/httproutes",
    "gateway.networking.k8s.io/grpcroutes",
    "gateway.networking.k8s.io/tlsroutes",
];
const INGRESS: &str = "k8s.io/api networking/v1 IngressRule, IngressTLS";
const GATEWAY: &str = "gateway-api apis/v1 httproute_types.go, gateway_types.go";
/// The same prefixes as in the module `external_dns` of the room `inventory`.
const EXTERNAL_DNS: &str = "external-dns source/annotations/annotations.go";
const CERTIFICATE: &str = "cert-manager pkg/apis/certmanager/v1 CertificateSpec";

/// Where host names are.
const ROWS: &[Row<Form>] = &[
    row(INGRESSES, "/spec/rules", Form::Rules, INGRESS),
    row(INGRESSES, "/spec/tls/*/hosts", Form::List, INGRESS),
    row(ROUTES, "/spec/hostnames", Form::List, GATEWAY),
    row(&["gateway.networking.k8s.io/gateways"], "/spec/listeners/*/hostname", Form::Single, GATEWAY),
    row(&["cert-manager.io/certificates"], "/spec/dnsNames", Form::Certificate, CERTIFICATE),
    row(&["cert-manager.io/certificates"], "/spec/commonName", Form::Single, CERTIFICATE),
    row(&[], "/metadata/annotations/external-dns.alpha.kubernetes.io~1hostname", Form::Commas, EXTERNAL_DNS),
    row(
        &[],
        "/metadata/annotations/external-dns.alpha.kubernetes.io~1internal-hostname",
        Form::Commas,
        EXTERNAL_DNS,
    ),
    row(&[], "/metadata/annotations/external-dns.kubernetes.io~1hostname", Form::Commas, EXTERNAL_DNS),
    row(
        &[],
        "/metadata/annotations/external-dns.kubernetes.io~1internal-hostname",
        Form::Commas,
        EXTERNAL_DNS,
    ),
];

/// What a rule does with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Add(String),
    Replace(String),
}

/// Changes the host names of an object.
pub(super) fn change_hosts(config: &Config, kind: &Kind<'_>, object: &mut Value, uses: &Uses) {
    if config.hosts.is_empty() {
        return;
    }
    let of = |name: &str| {
        let (index, change) = change(&config.hosts, name)?;
        uses.mark("hosts", index);
        Some(change)
    };
    for row in ROWS.iter().filter(|row| row.kinds.is_empty() || row.kinds.contains(&kind.resource)) {
        match row.form {
            Form::List => each(object, row.place, &mut |value| change_list(value, &of)),
            Form::Certificate => each(object, row.place, &mut |value| change_certificate(value, &of)),
            Form::Rules => each(object, row.place, &mut |value| change_rules(value, &of)),
            Form::Single => change_text(object, row.place, &mut |text| match of(text)? {
                Change::Replace(new) => Some(new),
                Change::Add(_) => None,
            }),
            Form::Commas => change_text(object, row.place, &mut |text| {
                let names: Vec<&str> =
                    text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
                let changed = change_names(names.iter().copied(), &of);
                (changed != names).then(|| changed.join(","))
            }),
        }
    }
}

/// Returns the rule for a name, and the change; `None` if no rule matches, or if the name is in the new domain already.
fn change(rules: &[HostRule], name: &str) -> Option<(usize, Change)> {
    rules.iter().enumerate().find_map(|(index, rule)| {
        let head = head(name, &rule.suffix)?;
        let domain = rule.add.as_ref().or(rule.replace.as_ref())?;
        if self::head(name, domain).is_some() && domain.len() > rule.suffix.len() {
            return None;
        }
        let new = format!("{head}{domain}");
        Some((index, if rule.add.is_some() { Change::Add(new) } else { Change::Replace(new) }))
    })
}

/// Returns what precedes a domain in a name, with its dot.
fn head<'n>(name: &'n str, domain: &str) -> Option<&'n str> {
    let head = name.strip_suffix(domain)?;
    (head.is_empty() || head.ends_with('.')).then_some(head)
}

/// Returns the names with the changes. No name occurs twice because of a change.
fn change_names<'n>(
    names: impl Iterator<Item = &'n str> + Clone,
    of: &dyn Fn(&str) -> Option<Change>,
) -> Vec<String> {
    let (mut found, added) = kept_and_added(names, of);
    for new in added {
        if !found.contains(&new) {
            found.push(new);
        }
    }
    found
}

/// Returns the names that stay or are replaced, and the names that are added. An added name can also be among the others.
fn kept_and_added<'n>(
    names: impl Iterator<Item = &'n str> + Clone,
    of: &dyn Fn(&str) -> Option<Change>,
) -> (Vec<String>, Vec<String>) {
    let mut found: Vec<String> = Vec::new();
    let mut added = Vec::new();
    for name in names {
        match of(name) {
            None => found.push(name.to_string()),
            Some(Change::Replace(new)) => found.push(new),
            Some(Change::Add(new)) => {
                found.push(name.to_string());
                added.push(new);
            }
        }
    }
    (found, added)
}

/// What rules do with the names of a certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::mirror) struct CertificateNames {
    /// Names to add.
    pub missing: Vec<String>,
    /// Names that a rule adds, and that the certificate has.
    pub present: Vec<String>,
    /// Names that a rule adds, and that a wildcard of the certificate covers.
    pub covered: Vec<String>,
}

impl CertificateNames {
    /// Returns what the rules do with these names.
    pub fn of(rules: &[HostRule], names: &[&str]) -> Self {
        let of = |name: &str| Some(change(rules, name)?.1);
        let (kept, added) = kept_and_added(names.iter().copied(), &of);
        Self::sort(&kept, added)
    }

    fn sort(kept: &[String], added: Vec<String>) -> Self {
        let mut sorted = Self::default();
        for new in added {
            if kept.iter().any(|name| name.eq_ignore_ascii_case(&new)) {
                sorted.present.push(new);
            } else if kept.iter().any(|name| covers(name, &new)) {
                sorted.covered.push(new);
            } else if !sorted.missing.contains(&new) {
                sorted.missing.push(new);
            }
        }
        sorted
    }
}

/// Returns whether a name of a certificate is a wildcard that covers another name. A wildcard stands for exactly one label (RFC 9525,
/// section 6.3).
fn covers(wildcard: &str, name: &str) -> bool {
    let Some(domain) = wildcard.strip_prefix("*.") else { return false };
    let is_in =
        |(label, rest): (&str, &str)| !label.is_empty() && label != "*" && rest.eq_ignore_ascii_case(domain);
    name.split_once('.').is_some_and(is_in)
}

/// Changes the names of a certificate, as `mirror sans` does in the source: with other names the mirror would issue the certificate
/// again.
fn change_certificate(value: &mut Value, of: &dyn Fn(&str) -> Option<Change>) {
    let Some(names) = value.as_array() else { return };
    let (mut kept, added) = kept_and_added(names.iter().filter_map(Value::as_str), of);
    kept.append(&mut CertificateNames::sort(&kept, added).missing);
    *value = json!(kept);
}

fn change_list(value: &mut Value, of: &dyn Fn(&str) -> Option<Change>) {
    let Some(names) = value.as_array() else { return };
    let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
    *value = json!(change_names(names.into_iter(), of));
}

/// Changes the rules of an Ingress. An added name gets a copy of its rule.
fn change_rules(value: &mut Value, of: &dyn Fn(&str) -> Option<Change>) {
    let Some(rules) = value.as_array_mut() else { return };
    let mut added = Vec::new();
    for rule in rules.iter_mut() {
        match rule["host"].as_str().and_then(of) {
            Some(Change::Replace(new)) => rule["host"] = new.into(),
            Some(Change::Add(new)) => {
                let mut copy = rule.clone();
                if let Some(fields) = copy.as_object_mut() {
                    fields.insert("host".to_string(), new.into());
                }
                added.push(copy);
            }
            None => {}
        }
    }
    for copy in added {
        if !rules.iter().any(|rule| rule.get("host") == copy.get("host")) {
            rules.push(copy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(suffix: &str, add: Option<&str>, replace: Option<&str>) -> HostRule {
        let text = |one: Option<&str>| one.map(str::to_string);
        HostRule { suffix: suffix.to_string(), add: text(add), replace: text(replace) }
    }

    #[test]
    fn names_change_by_their_domain() {
        let add = |new: &str| Some(Change::Add(new.to_string()));
        let replace = |new: &str| Some(Change::Replace(new.to_string()));
        let rules = [
            rule("internal.example.com", None, Some("internal.example.net")),
            rule("example.com", Some("green.example.com"), None),
        ];
        for (name, expected) in [
            ("www.example.com", add("www.green.example.com")),
            ("example.com", add("green.example.com")),
            ("*.example.com", add("*.green.example.com")),
            ("a.internal.example.com", replace("a.internal.example.net")),
            ("www.green.example.com", None),
            ("notexample.com", None),
            ("www.example.org", None),
        ] {
            assert_eq!(change(&rules, name).map(|(_, change)| change), expected, "{name}");
        }
        let shorter = [rule("blue.example.com", None, Some("example.com"))];
        assert_eq!(
            change(&shorter, "a.blue.example.com").map(|(_, change)| change),
            replace("a.example.com")
        );
    }

    fn after(resource: &str, object: &Value, rule: HostRule) -> Value {
        let config = Config { hosts: vec![rule], ..Config::default() };
        let (mut object, uses) = (object.clone(), Uses::default());
        change_hosts(&config, &Kind { resource, kind: "X" }, &mut object, &uses);
        assert!(uses.has("hosts", 0), "{resource}");
        let once = object.clone();
        if config.hosts[0].add.is_some() {
            change_hosts(&config, &Kind { resource, kind: "X" }, &mut object, &uses);
            assert_eq!(object, once, "a second time changes nothing");
        }
        object
    }

    #[test]
    fn ingress_serves_the_added_name() {
        let backend = json!({"paths": [{"path": "/"}]});
        let ingress = json!({"spec": {
            "rules": [{"host": "www.example.com", "http": backend.clone()}, {"http": backend.clone()}],
            "tls": [{"hosts": ["www.example.com"], "secretName": "a"}, {"secretName": "b"}]}});
        let added =
            after("networking.k8s.io/ingresses", &ingress, rule("example.com", Some("example.net"), None));
        assert_eq!(
            added["spec"],
            json!({
                "rules": [{"host": "www.example.com", "http": backend.clone()}, {"http": backend.clone()},
                          {"host": "www.example.net", "http": backend.clone()}],
                "tls": [{"hosts": ["www.example.com", "www.example.net"], "secretName": "a"}, {"secretName": "b"}]})
        );
        let replaced =
            after("networking.k8s.io/ingresses", &ingress, rule("example.com", None, Some("example.net")));
        assert_eq!(replaced["spec"]["rules"][0]["host"], "www.example.net");
        assert_eq!(replaced["spec"]["tls"][0]["hosts"], json!(["www.example.net"]));
    }

    #[test]
    fn wildcard_covers_one_label() {
        for (wildcard, name, expected) in [
            ("*.example.com", "www.example.com", true),
            ("*.example.com", "WWW.Example.com", true),
            ("*.example.com", "a.www.example.com", false),
            ("*.example.com", "example.com", false),
            ("*.example.com", "*.example.com", false),
            ("*.example.com", ".example.com", false),
            ("www.example.com", "www.example.com", false),
        ] {
            assert_eq!(covers(wildcard, name), expected, "{wildcard} {name}");
        }
    }

    #[test]
    fn certificate_gets_only_names_that_it_lacks() {
        let rules = [
            rule("blue.example.com", Some("example.com"), None),
            rule("example.org", None, Some("example.net")),
        ];
        let of = |names: &[&str]| {
            let CertificateNames { missing, present, covered } = CertificateNames::of(&rules, names);
            [missing, present, covered].map(|names| names.join(" "))
        };
        for (names, expected) in [
            (vec!["www.blue.example.com"], ["www.example.com", "", ""]),
            (vec!["www.blue.example.com", "www.example.com"], ["", "www.example.com", ""]),
            (vec!["www.blue.example.com", "*.example.com"], ["", "", "www.example.com"]),
            (vec!["a.b.blue.example.com", "*.example.com"], ["a.b.example.com", "", ""]),
            (vec!["*.blue.example.com", "www.blue.example.com"], ["*.example.com www.example.com", "", ""]),
            (vec!["www.example.org"], ["", "", ""]),
            (vec![], ["", "", ""]),
        ] {
            assert_eq!(of(&names), expected, "{names:?}");
        }
        let certificate = json!({"spec": {"dnsNames": ["www.blue.example.com", "*.example.com"]}});
        let copy = after(
            "cert-manager.io/certificates",
            &certificate,
            rule("blue.example.com", Some("example.com"), None),
        );
        assert_eq!(copy, certificate, "the copy has the names of the copied Secret");
    }

    #[test]
    fn every_row_is_changed() {
        for row in ROWS {
            let leaf = match row.form {
                Form::List | Form::Certificate => json!(["www.example.com"]),
                Form::Single => json!("www.example.com"),
                Form::Commas => json!("a.org, www.example.com"),
                Form::Rules => json!([{"host": "www.example.com"}]),
            };
            let steps: Vec<String> =
                row.place.split('/').skip(1).map(|step| step.replace("~1", "/")).collect();
            let object = steps.into_iter().rev().fold(leaf, |inner, step| match step.as_str() {
                "*" => json!([inner]),
                _ => json!({step: inner}),
            });
            for kind in if row.kinds.is_empty() { &["/services"] } else { row.kinds } {
                let replaced =
                    after(kind, &object, rule("example.com", None, Some("example.net"))).to_string();
                assert!(
                    replaced.contains("www.example.net") && !replaced.contains("www.example.com"),
                    "{replaced}"
                );
                let added = after(kind, &object, rule("example.com", Some("example.net"), None)).to_string();
                assert_eq!(added.contains("www.example.net"), row.form != Form::Single, "{added}");
                assert!(added.contains("www.example.com"), "{added}");
            }
            assert!(row.source.len() > 10);
        }
    }
}
