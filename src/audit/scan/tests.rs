//! Tests of the scanner.

use proptest::prelude::*;

use super::*;

fn old(ranges: &[&str]) -> Old {
    Old::new(ranges.iter().map(|range| range.parse().unwrap()).collect())
}

fn found(ranges: &[&str], text: &str) -> Vec<String> {
    let old = old(ranges);
    let hits = old.hits(text.as_bytes());
    assert!(hits.is_empty() || old.may_say(text.as_bytes()), "the quick test misses `{text}`");
    hits.into_iter().map(|hit| hit.found).collect()
}

#[test]
fn addresses_are_found_in_every_notation() {
    for text in [
        "10.96.0.10",
        "http://10.96.0.10/path",
        "10.96.0.10:53",
        "a=10.96.0.10,b",
        "[10.96.0.10]",
        "x 10.96.0.10.",
        "\"10.96.0.10\"",
        "\\n10.96.0.10",
        "http%3A%2F%2F10.96.0.10",
        "a\\u003d10.96.0.10",
        "::ffff:10.96.0.10",
        "app.10.96.0.10.nip.io",
        "-localip=169.254.20.10,10.96.0.10",
        "10.096.000.010",
        "ip_10.96.0.10",
        "%2010.96.0.10",
        "10.96.0.10/12",
        "10-96-0-10.shop.pod.cluster.local",
        "dns-10.96.0.10",
    ] {
        assert_eq!(found(&["10.96.0.0/16"], text), ["10.96.0.10"], "{text}");
    }
}

#[test]
fn parts_of_longer_words_are_not_found() {
    for text in [
        "110.96.0.1",
        "10.96.0.1234",
        "1.10.96.0.1",
        "10.96.0.1.5",
        "v10.96.0.1-x",
        "10.960.0.1",
        "10.96.0.1x",
        "10.96.0",
        "10.97.0.1",
        "910.96.0.10",
        "10.0.0.0/8",
        "0.0.0.0/0",
        "10.96.0.0/12",
        "10.in-addr.arpa",
        "in-addr.arpa",
        "1.0.97.10.in-addr.arpa",
        "x10-96-0-10.pod",
        "10-96-0-10",
        "ip-10-96-0-10.ec2.internal",
        "10.*",
        "10:96:0:10",
        "10.96.0.256",
    ] {
        assert_eq!(found(&["10.96.0.0/16"], text), Vec::<String>::new(), "{text}");
    }
    assert!(found(&["10.0.0.0/16"], "10.0.96.10.in-addr.arpa").is_empty(), "a zone, not an address");
}

#[test]
fn the_range_and_its_parts_are_found() {
    assert_eq!(
        found(&["10.96.0.0/12"], "a:10.96.0.0/12;10.100.0.0/16 10.96.0.0\\/14"),
        ["10.96.0.0/12", "10.100.0.0/16", "10.96.0.0/14"]
    );
    assert_eq!(
        found(&["10.96.0.0/16"], "10.96.0.0%2F16 and 10.96.* or 10.96.7.*"),
        ["10.96.0.0/16", "10.96.0.0/16", "10.96.7.0/24"]
    );
    assert_eq!(found(&["10.96.0.0/16"], "10.96.0.1-10.96.0.20"), ["10.96.0.1", "10.96.0.20"]);
}

#[test]
fn reverse_zones_are_found() {
    assert_eq!(
        found(&["10.96.0.0/16"], "kubernetes cluster.local 96.10.in-addr.arpa ip6.arpa {"),
        ["96.10.in-addr.arpa"]
    );
    assert_eq!(found(&["10.96.0.0/16"], "10.0.96.10.IN-ADDR.ARPA."), ["10.0.96.10.in-addr.arpa"]);
    assert_eq!(
        found(&["10.96.0.0/20"], "96.10.in-addr.arpa"),
        ["96.10.in-addr.arpa"],
        "the smallest one that covers it"
    );
    let zone = "6.9.0.0.0.1.0.0.0.0.d.f.ip6.arpa";
    assert_eq!(found(&["fd00:10:96::/48"], zone), [zone]);
    assert!(found(&["fd00:10:97::/48"], zone).is_empty());
}

#[test]
fn ipv6_addresses_are_found_in_every_notation() {
    let range = ["fd00:10:96::/112"];
    for text in [
        "fd00:10:96::a",
        "[fd00:10:96::a]:443",
        "https://[fd00:10:96::a]:443/",
        "FD00:0010:0096:0:0:0:0:000A",
        "a,fd00:10:96::a,b",
        "dns: fd00:10:96::a",
        "bind:fd00:10:96::a",
        "fd00:10:96::a%eth0",
        "fd00:10:96::a.",
        "\\nfd00:10:96::a",
        "%5Bfd00:10:96::a%5D",
    ] {
        assert_eq!(found(&range, text), ["fd00:10:96::a"], "{text}");
    }
    assert_eq!(found(&range, "fd00:10:96::/112, ::/0, fd00::/8"), ["fd00:10:96::/112"]);
    for text in
        ["fd00:10:97::a", "1fd00:10:96::a", "fd00:10:96::ag", "12:34:56", "aa:bb:cc:dd:ee:ff", "std::a::b"]
    {
        assert_eq!(found(&range, text), Vec::<String>::new(), "{text}");
    }
    assert_eq!(found(&["::/112"], "::5"), ["::5"]);
}

#[test]
fn offsets_are_reported() {
    let hits = old(&["10.96.0.0/16", "fd00::/112"]).hits(b"x fd00::1 y 10.96.0.1");
    assert_eq!(hits.iter().map(|hit| hit.start).collect::<Vec<_>>(), [2, 12]);
}

/// Returns a strategy for the delimiter before an address.
fn delimiter() -> impl Strategy<Value = String> {
    "[ ,;=\"'\\[\\](){}|<>\\n\\t@/_]"
}

proptest! {
    #[test]
    fn an_address_between_delimiters_is_always_found(
        before in "\\PC{0,40}", after in "\\PC{0,40}", open in delimiter(), close in "[ ,;=\"'\\[\\](){}|<>\\n\\t@]", low: u16,
        v6: bool,
    ) {
        let [c, d] = low.to_be_bytes();
        let address = if v6 { format!("fd00:10:96::{low:x}") } else { format!("10.96.{c}.{d}") };
        let wanted: IpAddr = address.parse().unwrap();
        let text = format!("{before}{open}{address}{close}{after}");
        let found = found(&["10.96.0.0/16", "fd00:10:96::/112"], &text);
        prop_assert!(found.contains(&wanted.to_string()), "`{}`: {:?}", text, found);
    }

    #[test]
    fn part_of_a_longer_number_is_never_found(before in "[1-9][0-9]{0,2}\\.?", after in "[0-9]{1,3}", low: u16) {
        let [c, d] = low.to_be_bytes();
        let first = format!(" {before}10.96.{c}.{d} ");
        let whole: Option<IpAddr> = first.trim().parse().ok();
        if whole.is_none_or(|address| !address.to_string().starts_with("10.96.")) {
            prop_assert_eq!(found(&["10.96.0.0/16"], &first), Vec::<String>::new());
        }
        let second = format!(" 10.96.{c}.{d}.{after} ");
        prop_assert_eq!(found(&["10.96.0.0/16"], &second), Vec::<String>::new());
    }

    #[test]
    fn addresses_of_another_range_are_not_found(text in "[0-9a-f.:/ -]{0,80}") {
        for hit in found(&["10.96.0.0/16"], &text) {
            prop_assert!(hit.starts_with("10.96."), "`{}`: {}", text, hit);
        }
    }

    #[test]
    fn quick_test_agrees_on_every_part(before in proptest::collection::vec(any::<u8>(), 0..20), text in "[0-9a-f.:/*-]{0,30}") {
        let old = old(&["10.96.0.0/12", "fd00::/64"]);
        let whole = [before, text.clone().into_bytes()].concat();
        if !old.hits(text.as_bytes()).is_empty() {
            prop_assert!(old.may_say(&whole));
        }
    }
}
