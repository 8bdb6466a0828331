//! Parses the output of `iptables-save`.

use std::collections::HashMap;
use std::net::IpAddr;

use super::model::{Chain, FilterBackend, FilterTable, Rule, Selector};

/// The names of actions; every other target is a chain.
const ACTIONS: &[&str] = &[
    "ACCEPT",
    "AUDIT",
    "CHECKSUM",
    "CLASSIFY",
    "CONNMARK",
    "CT",
    "DNAT",
    "DNPT",
    "DROP",
    "DSCP",
    "HL",
    "LOG",
    "MARK",
    "MASQUERADE",
    "NETMAP",
    "NFLOG",
    "NFQUEUE",
    "NOTRACK",
    "REDIRECT",
    "REJECT",
    "RETURN",
    "SNAT",
    "SNPT",
    "TCPMSS",
    "TCPOPTSTRIP",
    "TEE",
    "TOS",
    "TPROXY",
    "TRACE",
    "TTL",
    "ULOG",
];

/// Parses the tables. Returns `None` if the text does not end with `COMMIT` after each table.
pub(super) fn tables(text: &str, family: &str) -> Option<Vec<FilterTable>> {
    let mut tables = Vec::new();
    let mut open: Option<FilterTable> = None;
    // A table of kube-proxy can have tens of thousands of chains.
    let mut places: HashMap<String, usize> = HashMap::new();
    for line in text.lines() {
        match (line.split_at_checked(1)?, &mut open) {
            (("#", _), _) => {}
            (("*", name), None) => {
                places.clear();
                open = Some(FilterTable {
                    backend: FilterBackend::IptablesLegacy,
                    family: family.to_string(),
                    name: name.to_string(),
                    chains: Vec::new(),
                    sets: Vec::new(),
                });
            }
            ((":", chain), Some(table)) => {
                let mut words = chain.split(' ');
                let name = words.next()?.to_string();
                let is_base = words.next()? != "-";
                places.insert(name.clone(), table.chains.len());
                table.chains.push(Chain { name, is_base, rules: Vec::new() });
            }
            (("-", _), Some(table)) => {
                let (chain, rule) = rule(line)?;
                table.chains.get_mut(*places.get(&chain)?)?.rules.push(rule);
            }
            (("C", "OMMIT"), Some(_)) => tables.extend(open.take()),
            _ => return None,
        }
    }
    open.is_none().then_some(tables)
}

/// Parses `-A CHAIN ...`.
fn rule(line: &str) -> Option<(String, Rule)> {
    let words = words(line)?;
    let mut words = words.iter().map(String::as_str);
    let (_, chain) = (words.next().filter(|word| *word == "-A")?, words.next()?.to_string());
    let start = line.match_indices(' ').nth(1).map_or(line.len(), |(at, _)| at.saturating_add(1));
    let mut rule = Rule { text: line.get(start..).unwrap_or_default().to_string(), ..Rule::default() };
    let mut is_negated = false;
    while let Some(word) = words.next() {
        let mut selector = || Some(Selector { value: words.next()?.to_string(), is_negated });
        match word {
            "!" => {
                is_negated = true;
                continue;
            }
            "-s" => rule.source = selector(),
            "-d" => rule.destination = selector(),
            "-i" => rule.incoming = selector(),
            "-o" => rule.outgoing = selector(),
            "-m" => {
                let name = words.next()?;
                if name != "comment" {
                    let name = if ["tcp", "udp", "multiport"].contains(&name) { "port" } else { name };
                    rule.conditions.push(name.to_string());
                }
            }
            "--comment" => rule.comment = words.next().map(ToString::to_string),
            "--match-set" => rule.sets.extend(words.next().map(ToString::to_string)),
            "--nflog-group" => rule.log_group = words.next().and_then(|group| group.parse().ok()),
            "--to-destination" => rule.new_destination = words.next().and_then(address),
            "-j" | "-g" => {
                let target = words.next()?.to_string();
                let is_action = ACTIONS.contains(&target.as_str());
                *(if is_action { &mut rule.action } else { &mut rule.jump }) = Some(target);
            }
            _ => {}
        }
        is_negated = false;
    }
    Some((chain, rule))
}

/// Parses `ADDRESS`, `ADDRESS:PORT`, `[ADDRESS]:PORT` and ranges of them.
fn address(word: &str) -> Option<IpAddr> {
    let first = word.split('-').next()?;
    if let Some(rest) = first.strip_prefix('[') {
        return rest.split(']').next()?.parse().ok();
    }
    first.parse().ok().or_else(|| first.rsplit_once(':')?.0.parse().ok())
}

/// Splits a line into words. A text in double quotes is one word; a backslash protects the next letter in it.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut letters = line.chars().peekable();
    while letters.peek().is_some() {
        let mut word = String::new();
        let mut is_quoted = false;
        while let Some(letter) = letters.next() {
            match letter {
                '"' => is_quoted = !is_quoted,
                '\\' if is_quoted => word.push(letters.next()?),
                ' ' if !is_quoted => break,
                _ => word.push(letter),
            }
        }
        if is_quoted {
            return None;
        }
        words.push(word);
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
# Generated by iptables-save v1.8.9
*nat
:PREROUTING ACCEPT [0:0]
:CNI-DN-x - [0:0]
-A PREROUTING -m comment --comment \"dnat \\\"a b\\\" to X\" -m addrtype --dst-type LOCAL -j CNI-DN-x
-A CNI-DN-x ! -s 10.1.0.0/16 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.2.3:8080
COMMIT
# Completed
";

    #[test]
    fn rules_are_parsed() {
        let tables = tables(TEXT, "ip").unwrap();
        let [table] = tables.as_slice() else { panic!("{tables:?}") };
        let [base, own] = table.chains.as_slice() else { panic!("{table:?}") };
        assert!(base.is_base && !own.is_base);
        assert_eq!(base.rules[0].comment.as_deref(), Some("dnat \"a b\" to X"));
        assert_eq!(base.rules[0].jump.as_deref(), Some("CNI-DN-x"));
        assert_eq!(own.rules[0].new_destination, Some("10.1.2.3".parse().unwrap()));
        assert!(own.rules[0].source.as_ref().unwrap().is_negated);
        assert!(own.rules[0].text.starts_with("! -s 10.1.0.0/16 -p tcp"), "{}", own.rules[0].text);
    }

    #[test]
    fn cut_text_is_refused() {
        let cut = TEXT.split("COMMIT").next().unwrap();
        assert_eq!(tables(cut, "ip"), None);
        assert_eq!(tables("iptables-save: permission denied\n", "ip"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(line in "\\PC{0,100}", words in "(-[sdijmA]|!|--comment|\"|[a-z:.0-9]{1,9}| ){0,20}") {
            let text = format!("*nat\n:A - [0:0]\n-A A {words}\n{line}\n-A{words}\nCOMMIT\n");
            let _ = (tables(&text, "ip"), tables(&line, "ip6"), address(&words));
        }
    }
}
