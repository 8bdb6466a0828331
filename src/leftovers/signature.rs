//! The types of the tables in which each plug-in has its names.

use super::context::Scene;
use super::{Kind, Leftover, Plugin};
use crate::node_state::{PolicyRule, Route, Rule, XfrmPolicy, XfrmState};

/// A set of names.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pattern {
    /// A whole name.
    Is(&'static str),
    /// A prefix and a part that the plug-in calculates: which letters it contains, and its shortest and longest length.
    Hash(&'static str, Letters, usize, usize),
    /// A prefix and a suffix.
    Between(&'static str, &'static str),
    /// A prefix that no other program uses, for example the domain of the plug-in.
    Own(&'static str),
}

/// Letters of the part of a name that a plug-in calculates.
#[derive(Debug, Clone, Copy)]
pub(super) enum Letters {
    Digits,
    /// Digits and dots.
    Version,
    Hex,
    /// `A` to `Z` and `2` to `7`.
    Base32,
    /// Letters, digits, `-` and `_`.
    Base64,
    /// The 85 letters of `npc/shortname.go` of Weave.
    Weave,
    /// Names of links.
    Link,
}

impl Letters {
    fn contain(self, letter: char) -> bool {
        match self {
            Self::Digits => letter.is_ascii_digit(),
            Self::Version => letter.is_ascii_digit() || letter == '.',
            Self::Hex => matches!(letter, '0'..='9' | 'a'..='f'),
            Self::Base32 => matches!(letter, 'A'..='Z' | '2'..='7'),
            Self::Base64 => letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'),
            Self::Weave => letter.is_ascii_alphanumeric() || "(){}[]+=_$%^!*|/?.;:@#~".contains(letter),
            Self::Link => letter.is_ascii_graphic() && letter != '/',
        }
    }
}

impl Pattern {
    pub(super) fn matches(self, name: &str) -> bool {
        match self {
            Self::Is(whole) => name == whole,
            Self::Hash(prefix, letters, shortest, longest) => name.strip_prefix(prefix).is_some_and(|rest| {
                (shortest..=longest).contains(&rest.len())
                    && rest.chars().all(|letter| letters.contain(letter))
            }),
            Self::Between(prefix, suffix) => name
                .strip_prefix(prefix)
                .and_then(|rest| rest.strip_suffix(suffix))
                .is_some_and(|rest| !rest.is_empty() && !rest.contains('/')),
            Self::Own(prefix) => name.starts_with(prefix),
        }
    }
}

/// Returns whether one of the patterns matches.
pub(super) fn any(patterns: &[Pattern], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name))
}

/// A link.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkMark {
    pub(super) name: Pattern,
    /// The kinds that it must have. Empty if its name alone shows its plug-in.
    pub(super) kinds: &'static [&'static str],
    /// Whether it counts only on a node that also has an item which only this plug-in creates.
    pub(super) is_weak: bool,
}

pub(super) const fn link(name: Pattern, kinds: &'static [&'static str]) -> LinkMark {
    LinkMark { name, kinds, is_weak: false }
}

/// A link that the kernel or another program creates, too.
pub(super) const fn weak_link(name: Pattern, kinds: &'static [&'static str]) -> LinkMark {
    LinkMark { name, kinds, is_weak: true }
}

/// Chains of iptables.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChainMark {
    pub(super) name: Pattern,
    /// Names of the tables. Empty if the chain can be in every table.
    pub(super) tables: &'static [&'static str],
    /// Whether a rule in the chain, or one that jumps to it, must have a comment of the plug-in.
    pub(super) needs_comment: bool,
}

pub(super) const fn chain(name: &'static str, tables: &'static [&'static str]) -> ChainMark {
    ChainMark { name: Pattern::Is(name), tables, needs_comment: false }
}

pub(super) const fn chains(name: Pattern, tables: &'static [&'static str]) -> ChainMark {
    ChainMark { name, tables, needs_comment: false }
}

/// Chains that need a comment of the plug-in.
pub(super) const fn commented(name: Pattern, tables: &'static [&'static str]) -> ChainMark {
    ChainMark { name, tables, needs_comment: true }
}

/// Why an item belongs to a plug-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) text: &'static str,
    /// Whether it counts only on a node that also has an item which only this plug-in creates.
    pub(super) is_weak: bool,
}

/// A reason that is enough.
#[expect(clippy::unnecessary_wraps, reason = "the functions of a signature return an `Option`")]
pub(super) const fn sure(text: &'static str) -> Option<Reason> {
    Some(Reason { text, is_weak: false })
}

/// A reason that is enough only together with others.
#[expect(clippy::unnecessary_wraps, reason = "the functions of a signature return an `Option`")]
pub(super) const fn weak(text: &'static str) -> Option<Reason> {
    Some(Reason { text, is_weak: true })
}

/// A rule of iptables in the chain of another program.
pub(super) struct Placed<'r> {
    pub(super) table: &'r str,
    pub(super) chain: &'r str,
    pub(super) rule: &'r Rule,
    /// The other rules of the chain.
    pub(super) chain_rules: &'r [Rule],
}

/// The names of a plug-in.
pub(super) struct Signature {
    pub(super) plugin: Plugin,
    pub(super) links: &'static [LinkMark],
    pub(super) chains: &'static [ChainMark],
    /// Comments of its rules in the chains of other programs.
    pub(super) comments: &'static [Pattern],
    /// Comments of its rules in its own chains, or that jump to them.
    pub(super) inner_comments: &'static [Pattern],
    pub(super) ipsets: &'static [Pattern],
    /// Families and names of tables of nftables.
    pub(super) nft_tables: &'static [(&'static str, Pattern)],
    /// Paths of files and folders.
    pub(super) files: &'static [Pattern],
    /// Those of them that another program creates, too.
    pub(super) weak_files: &'static [Pattern],
    /// Types of its plug-ins in network configurations.
    pub(super) types: &'static [&'static str],
    /// Paths of pinned BPF objects.
    pub(super) pins: &'static [Pattern],
    /// Names of programs of traffic control.
    pub(super) programs: &'static [Pattern],
    /// Numbers and names of routing tables.
    pub(super) tables: &'static [(u32, &'static str)],
    pub(super) filter_rule: fn(&Placed<'_>, &Scene<'_>) -> Option<Reason>,
    pub(super) route: fn(&Route, &Scene<'_>) -> Option<Reason>,
    pub(super) policy_rule: fn(&PolicyRule, &Scene<'_>) -> Option<Reason>,
    pub(super) xfrm_policy: fn(&XfrmPolicy) -> bool,
    pub(super) xfrm_state: fn(&XfrmState, &Scene<'_>) -> bool,
    pub(super) objects: &'static [ObjectMark],
    /// Keys of annotations, labels and taints of Nodes.
    pub(super) node_keys: &'static [Pattern],
    /// Reasons of the condition `NetworkUnavailable`.
    pub(super) conditions: &'static [&'static str],
}

impl Signature {
    pub(super) const EMPTY: Self = Self {
        plugin: Plugin::Reference,
        links: &[],
        chains: &[],
        comments: &[],
        inner_comments: &[],
        ipsets: &[],
        nft_tables: &[],
        files: &[],
        weak_files: &[],
        types: &[],
        pins: &[],
        programs: &[],
        tables: &[],
        filter_rule: |_, _| None,
        route: |_, _| None,
        policy_rule: |_, _| None,
        xfrm_policy: |_| false,
        xfrm_state: |_, _| false,
        objects: &[],
        node_keys: &[],
        conditions: &[],
    };
}

/// Objects of a plug-in.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectMark {
    pub(super) kind: &'static str,
    /// The namespaces in which its manifests put it. Empty for objects without namespace.
    pub(super) namespaces: &'static [&'static str],
    pub(super) name: Pattern,
    /// Names that another program uses.
    pub(super) except: &'static [&'static str],
}

/// An object in a namespace.
pub(super) const fn object(
    kind: &'static str,
    namespaces: &'static [&'static str],
    name: &'static str,
) -> ObjectMark {
    ObjectMark { kind, namespaces, name: Pattern::Is(name), except: &[] }
}

/// The custom resource definitions of an API group.
pub(super) const fn resources(group: &'static str) -> ObjectMark {
    resources_except(group, &[])
}

/// The custom resource definitions of an API group in which another program has some, too.
pub(super) const fn resources_except(group: &'static str, except: &'static [&'static str]) -> ObjectMark {
    ObjectMark {
        kind: "CustomResourceDefinition",
        namespaces: &[],
        name: Pattern::Between("", group),
        except,
    }
}

/// An item that a judge found.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) leftover: Leftover,
    pub(super) is_weak: bool,
}

impl Found {
    pub(super) fn new(
        signature: &Signature,
        kind: Kind,
        name: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        let leftover = Leftover {
            plugin: signature.plugin,
            kind,
            name: name.into(),
            place: String::new(),
            reason: String::new(),
            command: command.into(),
        };
        Self { leftover, is_weak: false }
    }

    pub(super) fn at(mut self, place: impl Into<String>) -> Self {
        self.leftover.place = place.into();
        self
    }

    pub(super) fn because(mut self, reason: impl Into<String>) -> Self {
        self.leftover.reason = reason.into();
        self
    }

    pub(super) fn weak_if(mut self, is_weak: bool) -> Self {
        self.is_weak = is_weak;
        self
    }

    pub(super) fn for_reason(mut self, reason: Reason) -> Self {
        self.is_weak = reason.is_weak;
        self.because(reason.text)
    }
}

/// Quotes a word for a shell.
pub(super) fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| format!("{word:?}"), std::borrow::Cow::into_owned)
}
