use super::*;
use crate::preflight::Verdict;

fn record(name: &str, kind: Kind, ttl: u32, data: &str) -> Record {
    Record { name: name.into(), kind, ttl, data: data.into() }
}

fn entry(name: &str, records: Vec<Record>) -> Entry {
    Entry {
        name: name.into(),
        by: vec!["Ingress `shop/web`".into()],
        records,
        is_wild: false,
        below: None,
        has_tls: true,
    }
}

fn www() -> Entry {
    entry("www.example.com", vec![record("www.example.com", Kind::A, 60, "192.0.2.1")])
}

type Said = Result<Answer, NameserverError>;

fn start(serial: u32, is_authoritative: bool) -> Answer {
    let data = format!("ns1.example.com admin.example.com {serial} 3600 600 86400 60");
    Answer { is_authoritative, exists: true, records: vec![record("example.com", Kind::Soa, 60, &data)] }
}

fn refused(code: &str) -> NameserverError {
    let at = "192.0.2.53:53".parse().unwrap();
    NameserverError::Refused { at, what: "an update of `example.com`".into(), code: code.into() }
}

#[test]
fn every_server_must_be_authoritative() {
    let judged = |list: Vec<Said>| {
        let named =
            list.into_iter().enumerate().map(|(number, answer)| (format!("ns{number}.example.com"), answer));
        authority(&named.collect::<Vec<_>>())
    };
    assert_eq!(judged(vec![Ok(start(7, true)), Ok(start(7, true))]).verdict, Verdict::Pass);
    let lags = judged(vec![Ok(start(7, true)), Ok(start(6, true))]);
    assert_eq!(lags.verdict, Verdict::Warn);
    assert!(lags.observed.contains("6 at `ns1.example.com`; 7 at `ns0.example.com`"), "{lags:?}");
    assert_eq!(
        judged(vec![Ok(start(7, true)), Ok(start(7, false))]).observed,
        "`ns1.example.com` is not authoritative for the zone"
    );
    assert_eq!(judged(vec![Ok(start(7, true)), Err(refused("REFUSED"))]).verdict, Verdict::Fail);
    assert_eq!(judged(Vec::new()).verdict, Verdict::Fail);
}

#[test]
fn updates_need_a_key_that_is_allowed_to_change_the_zone() {
    assert_eq!(updates(&Ok(()), true, Some("mirror"), None).verdict, Verdict::Pass);
    assert_eq!(updates(&Ok(()), true, None, None).verdict, Verdict::Warn);
    assert_eq!(updates(&Ok(()), false, Some("mirror"), None).verdict, Verdict::Warn, "permission unknown");
    assert!(updates(&Err(refused("REFUSED")), true, None, None).remedy.contains("--tsig-key-file"));
    let unknown = updates(&Err(refused("NOTAUTH BADKEY")), true, Some("mirror"), None);
    assert!(
        unknown.verdict == Verdict::Fail && unknown.remedy.contains("no key of this name"),
        "{unknown:?}"
    );
    let servers = BTreeSet::from(["ns-1.awsdns-09.org".to_string()]);
    let hosted = updates(&Err(refused("NOTIMP")), false, None, hosted(&servers));
    assert!(hosted.verdict == Verdict::Unknown && hosted.observed.contains("Amazon Route 53"), "{hosted:?}");
}

#[test]
fn resolver_must_find_the_same_zone() {
    let seen = |primary: &str, servers: &[&str]| -> Seen {
        let soa = Soa { primary: primary.into(), serial: 1, negative_ttl: 60 };
        (Some(soa), servers.iter().map(ToString::to_string).collect())
    };
    let ours = seen("ns1", &["ns1", "ns2"]);
    assert_eq!(twins("example.com", &ours, &ours, &[]).verdict, Verdict::Pass);
    assert_eq!(by_itself(twins("example.com", &ours, &ours, &[])).verdict, Verdict::Warn);
    assert_eq!(twins("example.com", &ours, &ours, &["`www`".into()]).verdict, Verdict::Warn);
    assert_eq!(twins("example.com", &ours, &seen("ns9", &["ns1", "ns2"]), &[]).verdict, Verdict::Fail);
    assert_eq!(twins("example.com", &ours, &seen("ns1", &["ns1"]), &[]).verdict, Verdict::Fail);
    assert!(twins("example.com", &ours, &(None, BTreeSet::new()), &[]).observed.contains("no zone"));
}

#[test]
fn names_must_have_records_in_the_zone() {
    assert_eq!(names("example.com", &[www()]).observed, "1 in the zone: 1 A");
    assert_eq!(names("example.com", &[]).verdict, Verdict::Fail);
    let missing = names("example.com", &[www(), entry("api.example.com", Vec::new())]);
    assert_eq!(missing.observed, "not in the zone: `api.example.com` (Ingress `shop/web`)");
    let below = Entry { below: Some("dev.example.com".into()), ..www() };
    assert!(names("example.com", &[below]).observed.ends_with("is in `dev.example.com`"));
    let wild = Entry { is_wild: true, ..www() };
    assert_eq!(names("example.com", &[wild]).verdict, Verdict::Warn);
}

#[test]
fn long_ttl_is_a_warning() {
    assert_eq!(ttls(&[www()]).verdict, Verdict::Pass);
    let long = entry("api.example.com", vec![record("api.example.com", Kind::A, 3600, "192.0.2.1")]);
    let judged = ttls(&[www(), long]);
    assert_eq!(judged.observed, "TTL longer than 300 s: `api.example.com` (3600 s)");
    assert!(judged.remedy.contains("at least 3600 s before"), "{judged:?}");
}

#[test]
fn changing_over_thirty_percent_of_a_zone_is_a_warning() {
    let zone: Vec<String> = (0..10).map(|number| format!("n{number}.example.com")).collect();
    let zone: BTreeSet<&str> = zone.iter().map(String::as_str).collect();
    let some = |count: usize| vec![www(); count];
    assert_eq!(share(&some(3), &zone).verdict, Verdict::Pass);
    assert_eq!(share(&some(4), &zone).verdict, Verdict::Warn);
    assert_eq!(share(&some(2), &zone.iter().take(3).copied().collect()).verdict, Verdict::Pass);
}

#[test]
fn mirror_must_serve_every_name() {
    let exposed = |name: &str, at: &[&str]| Exposed {
        name: name.into(),
        by: "Ingress `shop/web`".into(),
        has_tls: true,
        at: at.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(targets(&[www()], &[exposed("*.example.com", &["192.0.2.9"])]).verdict, Verdict::Pass);
    assert_eq!(targets(&[www()], &[]).observed, "nothing on the mirror serves `www.example.com`");
    let without = targets(&[www()], &[exposed("www.example.com", &[])]);
    assert_eq!(without.observed, "no address on the mirror: `www.example.com` (Ingress `shop/web`)");
}

#[test]
fn certificate_must_cover_the_name_and_be_valid() {
    let judged =
        |presented: Presented| certificates(&[("www.example.com".into(), "192.0.2.9".into(), presented)], 0);
    let names = |name: &str| vec![name.to_string()];
    assert_eq!(judged(Ok((names("*.example.com"), 60))).verdict, Verdict::Pass);
    assert_eq!(judged(Ok((names("*.example.com"), 3))).verdict, Verdict::Warn);
    assert!(judged(Ok((names("*.example.com"), -1))).observed.contains("has expired"));
    assert_eq!(
        judged(Ok((names("ingress.local"), 60))).observed,
        "`www.example.com` at 192.0.2.9: the certificate covers only `ingress.local`"
    );
    assert_eq!(judged(Err("connection refused".into())).verdict, Verdict::Fail);
    assert_eq!(certificates(&[], 1).verdict, Verdict::Pass);
}
