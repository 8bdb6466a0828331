//! Decodes a rule of nftables: the conditions and actions of which programs for network plug-ins make use, and their names.
//!
//! `iptables-nft` stores extensions of iptables as they are (`match` and `target`), with the C structures of
//! `include/uapi/linux/netfilter/`. Everything else is expressions that work with registers. Only the last value of a register is
//! followed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::links::ip;
use super::model::{Rule, Selector};
use crate::host::netlink::{attribute, attributes, big32, native, native32, text, text_of};

/// Attributes of a rule: `NFTA_RULE_HANDLE`, `NFTA_RULE_EXPRESSIONS`, `NFTA_RULE_USERDATA`.
const HANDLE: u16 = 3;
const EXPRESSIONS: u16 = 4;
const USER_DATA: u16 = 7;
/// Attributes of an expression: `NFTA_EXPR_NAME`, `NFTA_EXPR_DATA`.
const NAME: u16 = 1;
const DATA: u16 = 2;
/// Type of the comment in the user data of `nft` and `iptables-nft` (`NFTNL_UDATA_RULE_COMMENT`).
const COMMENT: u8 = 0;
/// Address families.
const V4: u8 = 2;
const V6: u8 = 10;

/// What the last load put into a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loaded {
    Source,
    Destination,
    Incoming,
    Outgoing,
    Other,
}

/// The rule so far, and the registers.
struct Decoder<'n> {
    family: u8,
    names: &'n BTreeMap<u16, String>,
    rule: Rule,
    loaded: Loaded,
    /// Number of bytes that a load or a mask selects.
    prefix_len: Option<u8>,
    /// The last value that was stored in a register.
    value: Option<IpAddr>,
}

/// Decodes a rule from its attributes.
pub(super) fn rule(rule: &[u8], family: u8, names: &BTreeMap<u16, String>) -> Rule {
    let handle = attribute(rule, HANDLE).and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?)));
    let comment = attribute(rule, USER_DATA).and_then(user_comment);
    let mut decoder = Decoder {
        family,
        names,
        rule: Rule { handle, comment, ..Rule::default() },
        loaded: Loaded::Other,
        prefix_len: None,
        value: None,
    };
    for (_, expression) in attributes(attribute(rule, EXPRESSIONS).unwrap_or_default()) {
        if let Some(name) = text(expression, NAME) {
            let _ = decoder.expression(&name, attribute(expression, DATA).unwrap_or_default());
        }
    }
    let mut rule = decoder.rule;
    rule.text = rule.abbreviation();
    rule
}

impl Decoder<'_> {
    /// Decodes an expression. Returns `None` if it lacks an attribute.
    fn expression(&mut self, name: &str, data: &[u8]) -> Option<()> {
        match name {
            "payload" => self.payload(data)?,
            "meta" => {
                self.loaded = match attribute(data, 2).and_then(big32)? {
                    6 => Loaded::Incoming,
                    7 => Loaded::Outgoing,
                    3 => {
                        self.rule.conditions.push("mark".to_string());
                        Loaded::Other
                    }
                    _ => Loaded::Other,
                };
            }
            "bitwise" => self.prefix_len = attribute(attribute(data, 4)?, 1).and_then(ones),
            "cmp" => self.compare(data)?,
            "immediate" => self.immediate(attribute(data, 2)?),
            "match" => self.extension(&text(data, 1)?, attribute(data, 3).unwrap_or_default()),
            "target" => self.target(text(data, 1)?, attribute(data, 3).unwrap_or_default()),
            "log" => {
                self.rule.action = Some("LOG".to_string());
                self.rule.log_group = attribute(data, 1)
                    .and_then(|group| group.get(..2)?.try_into().map(u16::from_be_bytes).map(u32::from).ok());
            }
            "nat" => {
                self.rule.action =
                    Some(if attribute(data, 1).and_then(big32)? == 1 { "DNAT" } else { "SNAT" }.into());
                if self.rule.action.as_deref() == Some("DNAT") {
                    self.rule.new_destination = self.value;
                }
            }
            "masq" => self.rule.action = Some("MASQUERADE".to_string()),
            "redir" => self.rule.action = Some("REDIRECT".to_string()),
            "reject" => self.rule.action = Some("REJECT".to_string()),
            "counter" => {}
            "lookup" => self.rule.conditions.push(format!("@{}", text(data, 1)?)),
            other => self.rule.conditions.push(other.to_string()),
        }
        Some(())
    }

    /// A load from a packet: base, offset and length.
    fn payload(&mut self, data: &[u8]) -> Option<()> {
        let number = |kind| attribute(data, kind).and_then(big32);
        let (base, offset, length) = (number(2)?, number(3)?, number(4)?);
        self.prefix_len = u8::try_from(length.checked_mul(8)?).ok();
        self.loaded = match (base, self.family, offset) {
            (1, V4, 12) | (1, V6, 8) => Loaded::Source,
            (1, V4, 16) | (1, V6, 24) => Loaded::Destination,
            (2, ..) => {
                self.rule.conditions.push("port".to_string());
                Loaded::Other
            }
            _ => Loaded::Other,
        };
        Some(())
    }

    fn compare(&mut self, data: &[u8]) -> Option<()> {
        let is_negated = attribute(data, 2).and_then(big32)? == 1;
        let value = attribute(attribute(data, 3)?, 1)?;
        let selector = |value: String| Some(Selector { value, is_negated });
        match self.loaded {
            Loaded::Source => self.rule.source = selector(self.network(value)?),
            Loaded::Destination => self.rule.destination = selector(self.network(value)?),
            Loaded::Incoming => self.rule.incoming = selector(link(value)),
            Loaded::Outgoing => self.rule.outgoing = selector(link(value)),
            Loaded::Other => {}
        }
        self.loaded = Loaded::Other;
        Some(())
    }

    /// Returns the network of a value, which is shorter than an address if the load was.
    fn network(&self, value: &[u8]) -> Option<String> {
        let mut bytes = value.to_vec();
        bytes.resize(if self.family == V4 { 4 } else { 16 }, 0);
        Some(IpNetwork::new(ip(&bytes)?, self.prefix_len?).ok()?.to_string())
    }

    /// A verdict, or a value for a later expression.
    fn immediate(&mut self, data: &[u8]) {
        if let Some(value) = attribute(data, 1) {
            self.value = ip(value);
        }
        let Some(verdict) = attribute(data, 2) else { return };
        let code = attribute(verdict, 1).and_then(big32).map(u32::cast_signed);
        match code {
            Some(0) => self.rule.action = Some("DROP".to_string()),
            Some(1) => self.rule.action = Some("ACCEPT".to_string()),
            Some(-5) => self.rule.action = Some("RETURN".to_string()),
            Some(-3 | -4) => self.rule.jump = text(verdict, 2),
            _ => {}
        }
    }

    /// A condition of iptables.
    fn extension(&mut self, name: &str, info: &[u8]) {
        match name {
            "comment" => self.rule.comment = Some(text_of(info)),
            // `xt_set_info_match_v0` and later versions start with the number of the set.
            "set" => {
                let set = info.get(..2).map(native).and_then(|index| self.names.get(&index));
                self.rule.sets.extend(set.cloned());
                self.rule.conditions.push("set".to_string());
            }
            "tcp" | "udp" | "multiport" => self.rule.conditions.push("port".to_string()),
            _ => self.rule.conditions.push(name.to_string()),
        }
    }

    /// An action of iptables.
    fn target(&mut self, name: String, info: &[u8]) {
        match name.as_str() {
            "DNAT" => self.rule.new_destination = self.destination(info),
            // `xt_nflog_info`: length and group.
            "NFLOG" => self.rule.log_group = info.get(4..6).map(native).map(u32::from),
            _ => {}
        }
        self.rule.action = Some(name);
    }

    /// Returns the first address of an `nf_nat_range`. Revision 0 has a number and an `nf_nat_ipv4_range` instead, of 20 bytes.
    fn destination(&self, info: &[u8]) -> Option<IpAddr> {
        let bytes = info.get(4..)?;
        let bytes = if self.family == V6 {
            bytes.get(..16)?
        } else if native32(info)? == 1 && (20..32).contains(&info.len()) {
            bytes.get(4..8)?
        } else {
            bytes.get(..4)?
        };
        ip(bytes)
    }
}

impl Rule {
    /// Returns the rule in the words of `iptables-save`, as far as it is decoded.
    fn abbreviation(&self) -> String {
        let mut words = Vec::new();
        for (flag, selector) in
            [("-s", &self.source), ("-d", &self.destination), ("-i", &self.incoming), ("-o", &self.outgoing)]
        {
            if let Some(selector) = selector {
                let not = if selector.is_negated { "! " } else { "" };
                words.push(format!("{not}{flag} {}", selector.value));
            }
        }
        words.extend(self.conditions.iter().map(|name| format!("-m {name}")));
        words.extend(self.comment.iter().map(|comment| format!("--comment {comment:?}")));
        words.extend(self.jump.iter().chain(&self.action).map(|target| format!("-j {target}")));
        words.extend(self.new_destination.iter().map(|address| format!("--to-destination {address}")));
        words.extend(self.log_group.iter().map(|group| format!("--nflog-group {group}")));
        words.join(" ")
    }
}

/// Returns the comment in the user data of a rule: a list of types, lengths and values.
fn user_comment(mut bytes: &[u8]) -> Option<String> {
    while let [kind, length, rest @ ..] = bytes {
        let value = rest.get(..usize::from(*length))?;
        if *kind == COMMENT {
            return Some(text_of(value));
        }
        bytes = rest.get(usize::from(*length)..)?;
    }
    None
}

/// Returns the name of a link. Without a zero byte at its end, it is a prefix.
fn link(value: &[u8]) -> String {
    let name = text_of(value);
    if value.contains(&0) || value.len() >= 16 { name } else { format!("{name}+") }
}

/// Returns the number of ones in a mask.
fn ones(mask: &[u8]) -> Option<u8> {
    let count: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    u8::try_from(count).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::netlink::encode;

    fn expression(name: &str, data: &[Vec<u8>]) -> Vec<u8> {
        let name = encode(NAME, &[name.as_bytes(), &[0]].concat());
        encode(1, &[name, encode(DATA, &data.concat())].concat())
    }

    fn number(kind: u16, value: u32) -> Vec<u8> {
        encode(kind, &value.to_be_bytes())
    }

    #[test]
    fn rule_of_iptables_is_decoded() {
        let mut comment = b"flanneld masq".to_vec();
        comment.resize(256, 0);
        let expressions = [
            expression("payload", &[number(1, 1), number(2, 1), number(3, 12), number(4, 2)]),
            expression("cmp", &[number(1, 1), number(2, 0), encode(3, &encode(1, &[10, 244]))]),
            expression("meta", &[number(1, 1), number(2, 7)]),
            expression("cmp", &[number(1, 1), number(2, 1), encode(3, &encode(1, b"weave\0"))]),
            expression("match", &[encode(1, b"comment\0"), number(2, 0), encode(3, &comment)]),
            expression("counter", &[]),
            expression(
                "immediate",
                &[
                    number(1, 0),
                    encode(2, &encode(2, &[number(1, (-3_i32).cast_unsigned()), encode(2, b"X\0")].concat())),
                ],
            ),
        ];
        let body =
            [encode(HANDLE, &7_u64.to_be_bytes()), encode(EXPRESSIONS, &expressions.concat())].concat();
        let rule = rule(&body, V4, &BTreeMap::new());
        assert_eq!(rule.text, "-s 10.244.0.0/16 ! -o weave --comment \"flanneld masq\" -j X");
        assert_eq!(rule.handle, Some(7));
    }

    #[test]
    fn comment_of_user_data_is_read() {
        assert_eq!(user_comment(b"\x01\x02ab\x00\x05name\0").as_deref(), Some("name"));
        assert_eq!(user_comment(b"\x01\x09ab"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), info in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = rule(&bytes, V4, &BTreeMap::new());
            let names = ["payload", "meta", "bitwise", "cmp", "immediate", "match", "target", "log", "nat", "lookup"];
            for name in names {
                let _ = rule(&encode(EXPRESSIONS, &expression(name, std::slice::from_ref(&info))), V6, &BTreeMap::new());
            }
            let target = [encode(1, b"DNAT\0"), encode(3, &info)];
            let _ = rule(&encode(EXPRESSIONS, &expression("target", &target)), V4, &BTreeMap::new());
            let _ = user_comment(&info);
        }
    }
}
