//! Compares security groups: which of them the nodes have, what they allow, and which other groups allow the nodes.

use std::collections::{BTreeMap, BTreeSet};

use ipnetwork::IpNetwork;

use super::change::{Area, Change, Command};
use super::group_rule::{Direction, Peer, Rule, Traffic, contains, overlap};
use super::names::Names;
use super::node_group::GroupPair;
use super::side::{Side, cluster_names};
use crate::aws::ec2::{Instance, SecurityGroup};
use crate::aws::{AwsError, Region};
use crate::words::first_few;

/// The security groups of a region, and which ones of the mirror stand for which of the source.
pub struct Groups<'g> {
    region: &'g Region,
    all: BTreeMap<&'g str, &'g SecurityGroup>,
    /// Names of the source's cluster in tags.
    owners: BTreeSet<&'g str>,
    /// Names of the mirror's cluster in tags.
    mirror_owners: BTreeSet<&'g str>,
    /// Networks of the two clusters.
    vpcs: BTreeSet<&'g str>,
    /// Groups of the source's nodes, and their counterparts. A group that nodes of both have is its own counterpart.
    pairs: BTreeMap<String, BTreeSet<String>>,
}

/// Addresses from which a cluster reaches others.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The ranges of the nodes' subnets.
    pub subnets: Vec<IpNetwork>,
    /// Public addresses of NAT gateways.
    pub public: Vec<IpNetwork>,
}

/// Ranges of prefix lists by id; the error says why a list was not read.
pub type PrefixLists = BTreeMap<String, Result<Vec<IpNetwork>, AwsError>>;

impl<'g> Groups<'g> {
    /// Pairs the groups of the nodes. Also returns the changes for groups that the mirror's nodes do not have.
    pub fn new(
        (source, mirror): (&'g Side, &'g Side),
        all: &'g [SecurityGroup],
        node_groups: &[GroupPair],
        names: &Names,
    ) -> (Self, Vec<Change>) {
        let mut groups = Self {
            region: &mirror.region,
            all: all.iter().map(|group| (group.group_id.as_str(), group)).collect(),
            owners: source.cluster_names(),
            mirror_owners: mirror.cluster_names(),
            vpcs: source.vpcs().into_iter().chain(mirror.vpcs()).collect(),
            pairs: BTreeMap::new(),
        };
        let mut changes = Vec::new();
        for pair in node_groups {
            changes.extend(groups.pair_groups(source, mirror, pair, names));
        }
        (groups, changes)
    }

    /// Returns the groups of the source's nodes, each with a counterpart.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.pairs.iter();
        pairs.flat_map(|(id, others)| others.iter().map(move |other| (id.as_str(), other.as_str())))
    }

    /// Returns the prefix lists in rules of groups that neither cluster owns.
    pub fn prefix_lists(&self) -> BTreeSet<String> {
        let rules = self.foreign().flat_map(Rule::all);
        rules.filter_map(|rule| if let Peer::List(id) = rule.peer { Some(id) } else { None }).collect()
    }

    fn name(&self, id: &str) -> String {
        match self.all.get(id) {
            Some(group) if !group.group_name.is_empty() => format!("{id} (`{}`)", group.group_name),
            _ => id.to_string(),
        }
    }

    /// Returns what a rule allows, with the name of a group.
    fn words(&self, rule: &Rule) -> String {
        match &rule.peer {
            Peer::Group(id) => rule.words().replace(id.as_str(), &self.name(id)),
            _ => rule.words(),
        }
    }

    /// Returns whether the source created the group for itself.
    fn is_of_source(&self, group: &SecurityGroup) -> bool {
        let names = || cluster_names(&group.tags);
        names().any(|name| self.owners.contains(name))
            && !names().any(|name| self.mirror_owners.contains(name))
    }

    fn is_of_mirror(&self, group: &SecurityGroup) -> bool {
        let names = || cluster_names(&group.tags);
        names().any(|name| self.mirror_owners.contains(name))
            && !names().any(|name| self.owners.contains(name))
    }

    /// Returns the groups that neither cluster has for itself: that is, all but those of the nodes of only one of them.
    fn foreign(&self) -> impl Iterator<Item = &'g SecurityGroup> {
        self.all.values().copied().filter(|group| {
            let is_of_one =
                |(id, other): (&str, &str)| id != other && [id, other].contains(&group.group_id.as_str());
            !self.is_of_source(group) && !self.is_of_mirror(group) && !self.pairs().any(is_of_one)
        })
    }

    /// Pairs the groups of two groups of nodes. In the source, at least one instance has a group; in the mirror, all instances.
    fn pair_groups(&mut self, source: &Side, mirror: &Side, pair: &GroupPair, names: &Names) -> Vec<Change> {
        let ids = |instance: &Instance| instance.groups().map(str::to_string).collect::<BTreeSet<String>>();
        let of_source: BTreeSet<String> = source.group(&pair.source).into_iter().flat_map(ids).collect();
        let of_mirror = mirror.group(&pair.mirror).into_iter().map(ids);
        let of_mirror =
            of_mirror.reduce(|all, one| all.intersection(&one).cloned().collect()).unwrap_or_default();
        let name = |id: &str| self.all.get(id).map_or(id, |group| group.group_name.as_str()).to_string();
        let mut free: BTreeSet<String> = of_mirror.difference(&of_source).cloned().collect();
        let mut left = Vec::new();
        let mut found: Vec<(String, String)> =
            of_source.intersection(&of_mirror).map(|id| (id.clone(), id.clone())).collect();
        for id in of_source.difference(&of_mirror) {
            let wanted = names.renamed(&name(id));
            let known = self.pairs.get(id).and_then(|known| known.intersection(&free).next());
            match known.or_else(|| free.iter().find(|other| name(other) == wanted)).cloned() {
                Some(other) => {
                    free.remove(&other);
                    found.push((id.clone(), other));
                }
                None => left.push(id.clone()),
            }
        }
        // Of the groups that belong to the clusters, the only ones that are left.
        let is_owned = |id: &String| self.all.get(id.as_str()).is_some_and(|group| self.is_of_source(group));
        let owned: Vec<usize> = (0..left.len()).filter(|at| left.get(*at).is_some_and(is_owned)).collect();
        if let ([at], [_]) = (owned.as_slice(), Vec::from_iter(&free).as_slice()) {
            found.extend(free.pop_first().map(|other| (left.remove(*at), other)));
        }
        for (id, other) in found {
            self.pairs.entry(id).or_default().insert(other);
        }
        left.iter().map(|id| self.lonely(mirror, pair, (id, names))).collect()
    }

    /// Returns the change for a group that instances of the source have and those of the mirror do not.
    fn lonely(&self, mirror: &Side, pair: &GroupPair, (id, names): (&str, &Names)) -> Change {
        let group = self.all.get(id);
        let is_of_source = group.is_none_or(|group| {
            self.is_of_source(group)
                || names.renamed(&group.group_name) != group.group_name
                || !mirror.vpcs().contains(group.vpc_id.as_str())
        });
        if is_of_source {
            return Change::not_checked(
                Area::SecurityGroup,
                self.name(id),
                format!(
                    "neither its rules were compared nor which other groups let it in: no group that all instances of `{}` of the mirror have has its name",
                    pair.mirror
                ),
                format!(
                    "instances of group `{}` of the source have it; `--rename NAME=NAME` with the names of both groups",
                    pair.source
                ),
            );
        }
        let mut change = Change::missing(
            Area::SecurityGroup,
            format!("instances of group `{}`", pair.mirror),
            format!(
                "add security group {}; also where new instances come from (launch template, `additionalSecurityGroups` of kOps)",
                self.name(id)
            ),
            format!("instances of group `{}` of the source have it", pair.source),
        );
        let mut by_groups: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
        let instances = mirror.group(&pair.mirror);
        for interface in instances.iter().filter_map(|instance| instance.first_interface()) {
            let own: Vec<&str> = interface.groups.iter().map(|group| group.group_id.as_str()).collect();
            if !own.contains(&id) {
                let groups = own.into_iter().chain([id]).collect();
                by_groups.entry(groups).or_default().push(&interface.network_interface_id);
            }
        }
        for (groups, interfaces) in by_groups {
            let command = Command::new("ec2", "modify-network-interface-attribute").in_region(self.region);
            let command = command.with_list("--groups", groups);
            change = change.with_command(command.for_each("--network-interface-id", &interfaces));
        }
        change
    }

    /// Returns the rules that are missing in the groups of the mirror's nodes, and in other groups for the mirror's nodes by group. With
    /// each change comes the id of its group.
    pub fn rules_by_group(&self) -> Vec<(String, Change)> {
        let mut found = Vec::new();
        for (id, other) in self.pairs().filter(|(id, other)| id != other) {
            let (Some(group), Some(counterpart)) = (self.all.get(id), self.all.get(other)) else { continue };
            let reason = |rule: &Rule| format!("{} of the source allows {}", self.name(id), self.words(rule));
            found.extend(self.missing_rules(group, counterpart, &reason));
        }
        for group in self.foreign() {
            let reason = |rule: &Rule| format!("it allows {} of the source", self.words(rule));
            found.extend(self.missing_rules(group, group, &reason));
        }
        found.extend(self.not_compared());
        found
    }

    /// Lists the groups that the source owns, that let its nodes in, and that have no counterpart.
    fn not_compared(&self) -> Option<(String, Change)> {
        let lets_in = |group: &&&SecurityGroup| {
            let is_of_nodes = |rule: Rule| {
                rule.direction == Direction::Inbound
                    && matches!(rule.peer, Peer::Group(id) if self.pairs.contains_key(&id))
            };
            self.is_of_source(group)
                && !self.pairs.contains_key(&group.group_id)
                && Rule::all(group).into_iter().any(is_of_nodes)
        };
        let found: Vec<&&SecurityGroup> = self.all.values().filter(lets_in).collect();
        let names: Vec<String> = found.iter().map(|group| self.name(&group.group_id)).collect();
        Some((
            found.first()?.group_id.clone(),
            Change::not_checked(
                Area::SecurityGroup,
                format!("security groups {}", first_few(&names)),
                "whether the mirror needs a rule in them was not compared".to_string(),
                "they let in nodes of the source, and have the tag of its cluster".to_string(),
            ),
        ))
    }

    /// Returns the rules of a group that its counterpart lacks once the peers are those of the mirror.
    fn missing_rules(
        &self,
        group: &SecurityGroup,
        counterpart: &SecurityGroup,
        reason: &dyn Fn(&Rule) -> String,
    ) -> Vec<(String, Change)> {
        let known = Rule::all(counterpart);
        let mut found: Vec<(String, Change)> = Vec::new();
        for rule in Rule::all(group) {
            for peer in self.peers_of_mirror(&rule.peer) {
                let wanted = rule.with_peer(peer.clone());
                if known.iter().any(|one| one.allows(&wanted)) {
                    continue;
                }
                let change = Change::missing(
                    Area::SecurityGroup,
                    self.name(&counterpart.group_id),
                    format!("allow {}", self.words(&wanted)),
                    reason(&rule),
                );
                // A group of another account or network needs a peering, and other parameters.
                let is_known = !matches!(&peer, Peer::Group(id) if !self.all.contains_key(id.as_str()));
                let command = wanted.command(self.region, &counterpart.group_id, std::slice::from_ref(&peer));
                let change = if is_known { change.with_command(command) } else { change };
                let is_new = found
                    .iter()
                    .all(|(_, other)| other.subject != change.subject || other.change != change.change);
                if is_new {
                    found.push((counterpart.group_id.clone(), change));
                }
            }
        }
        found
    }

    /// Returns the peers of the mirror that stand for a peer; none for a group that the source owns and that has no counterpart, such as
    /// that of a load balancer: the controllers of the mirror create their own.
    fn peers_of_mirror(&self, peer: &Peer) -> Vec<Peer> {
        let Peer::Group(id) = peer else { return vec![peer.clone()] };
        if let Some(mirror) = self.pairs.get(id) {
            return mirror.iter().cloned().map(Peer::Group).collect();
        }
        let is_of_source = self.all.get(id.as_str()).is_some_and(|group| self.is_of_source(group));
        if is_of_source { Vec::new() } else { vec![peer.clone()] }
    }

    /// Returns the rules by address of other groups that let in the source and not the mirror.
    pub fn rules_by_address(
        &self,
        (source, mirror): (&Places, &Places),
        lists: &PrefixLists,
    ) -> Vec<(String, Change)> {
        let of_group = |group: &'g SecurityGroup| {
            let private = self.closed_to(group, (&source.subnets, &mirror.subnets), lists, "subnets");
            let public = self.closed_to(group, (&source.public, &mirror.public), lists, "NAT gateways");
            private.into_iter().chain(public)
        };
        // Equal ranges of other networks are other hosts.
        let groups = self.foreign().filter(|group| self.vpcs.contains(group.vpc_id.as_str()));
        groups.flat_map(of_group).collect()
    }

    /// Returns the changes for addresses of the mirror to which a group is closed although it is open to those of the source.
    fn closed_to(
        &self,
        group: &SecurityGroup,
        (source, mirror): (&[IpNetwork], &[IpNetwork]),
        lists: &PrefixLists,
        what: &str,
    ) -> Vec<(String, Change)> {
        let inbound = || Rule::all(group).into_iter().filter(|rule| rule.direction == Direction::Inbound);
        let known: Vec<KnownRule> = inbound().map(|rule| (rule.clone(), ranges(&rule.peer, lists))).collect();
        let mut found: BTreeMap<Traffic, (Rule, Vec<Peer>)> = BTreeMap::new();
        let mut parts = BTreeSet::new();
        for (rule, ranges) in &known {
            let is_in = |test: &dyn Fn(&IpNetwork, &IpNetwork) -> bool| {
                source.iter().any(|place| ranges.iter().flatten().any(|range| test(range, place)))
            };
            let closed = mirror.iter().filter(|place| !self.is_open(&known, &rule.traffic, place));
            let peers: Vec<Peer> = closed.map(|place| Peer::Range(*place)).collect();
            if peers.is_empty() || !is_in(&overlap) {
                continue;
            }
            if is_in(&contains) {
                found.entry(rule.traffic.clone()).or_insert_with(|| (rule.clone(), peers));
            } else {
                parts.insert(rule.words());
            }
        }
        let change = |(traffic, (rule, peers)): (Traffic, (Rule, Vec<Peer>))| {
            let places: Vec<String> = peers.iter().map(ToString::to_string).collect();
            let change = Change::missing(
                Area::SecurityGroup,
                self.name(&group.group_id),
                format!("allow {traffic} from {}, the {what} of the mirror", first_few(&places)),
                format!("it allows {}, where {what} of the source are", rule.words()),
            );
            (group.group_id.clone(), change.with_command(rule.command(self.region, &group.group_id, &peers)))
        };
        let mut found: Vec<(String, Change)> = found.into_iter().map(change).collect();
        let mut not_checked = |change: Change| found.push((group.group_id.clone(), change));
        if !parts.is_empty() {
            let parts: Vec<String> = parts.into_iter().collect();
            not_checked(Change::not_checked(
                Area::SecurityGroup,
                self.name(&group.group_id),
                "whether the mirror needs a rule in it was not compared".to_string(),
                format!("it allows {}: only a part of the {what} of the source", first_few(&parts)),
            ));
        }
        let ids: BTreeSet<&String> = known
            .iter()
            .filter_map(|(rule, _)| if let Peer::List(id) = &rule.peer { Some(id) } else { None })
            .collect();
        for id in ids {
            if let Some(Err(error)) = lists.get(id) {
                let text =
                    format!("whether its rules for prefix list {id} let in the {what} was not compared");
                not_checked(Change::unread(Area::SecurityGroup, self.name(&group.group_id), &text, error));
            }
        }
        found
    }

    /// Returns whether rules let traffic in from a place: by its addresses, or by every group of the mirror's nodes.
    fn is_open(&self, rules: &[KnownRule], traffic: &Traffic, place: &IpNetwork) -> bool {
        let of_traffic = || rules.iter().filter(|(rule, _)| rule.traffic.contains(traffic));
        let by_address =
            of_traffic().any(|(_, ranges)| ranges.iter().flatten().any(|range| contains(range, place)));
        let has_group = |id: &String| of_traffic().any(|(rule, _)| rule.peer == Peer::Group(id.clone()));
        by_address || !self.pairs.is_empty() && self.pairs.values().flatten().all(has_group)
    }
}

/// A rule, with the addresses of its peer.
type KnownRule = (Rule, Option<Vec<IpNetwork>>);

/// Returns the addresses of a peer; `None` for a group.
fn ranges(peer: &Peer, lists: &PrefixLists) -> Option<Vec<IpNetwork>> {
    match peer {
        Peer::Range(range) => Some(vec![*range]),
        Peer::List(id) => lists.get(id)?.as_ref().ok().cloned(),
        Peer::Group(_) | Peer::Other(_) => None,
    }
}
