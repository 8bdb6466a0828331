//! Plans a cutover from the names of a cluster, their records, and their targets on the mirror. This module does no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::annotations::Published;
use super::cutover::{Cutover, Name, Ownership, Share};
use super::external_dns::{HOLDER, owner, with_owner};
use super::measured_share::ShareQuery;
use super::mix::{Split, mix};
use super::probe::Probing;
use super::space::MOST_NAMES;
use super::target;
use crate::inventory::ZoneService;
use crate::nameserver::{Alias, Record, RecordKind, RecordSet, have_same_data};
use crate::operation::Plan;
use crate::route53::{ALIAS_TTL, load_balancer_zone};
use crate::store::Revision;
use crate::words::all_of;

/// A name with so many targets is refused: with so many addresses, an answer does not fit into one datagram, and a tenant's
/// object with many names and many targets would need gigabytes of memory.
pub const TOO_MANY_TARGETS: usize = 100;

/// The input of a plan.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Identity of the cluster: uid of the namespace `kube-system`.
    pub cluster: String,
    /// The zone.
    pub zone: String,
    /// The DNS provider that hosts the zone.
    pub service: ZoneService,
    /// A resolver that clients use.
    pub resolver: SocketAddr,
    /// The owner that the mirror's ExternalDNS writes to TXT records; `None` if the mirror has no ExternalDNS that writes TXT
    /// ownership records.
    pub heir: Option<String>,
    /// How long the ExternalDNS of the cluster caches the owners of names, in seconds.
    pub owner_cache: u64,
    /// How long a resolver caches the negative answer for a record type that does not exist, in seconds.
    pub negative_ttl: u64,
    /// The names.
    pub names: Vec<Found>,
    /// Names of objects in the cluster that cannot be changed.
    pub left_out: Vec<LeftOut>,
}

/// A name of the cluster.
#[derive(Debug, Clone)]
pub struct Found {
    /// The name.
    pub name: String,
    /// Objects that contain the name, as text.
    pub by: Vec<String>,
    /// Whether the user selected this name. Otherwise an object of the cluster contains it.
    pub is_given: bool,
    /// A, AAAA and CNAME record sets of the name.
    pub sets: Vec<RecordSet>,
    /// The mirror's objects with this name, as text.
    pub on_mirror: Vec<String>,
    /// Addresses of these objects, or the names of their load balancers.
    pub targets: BTreeSet<String>,
    /// The address types of the targets: A, AAAA, or both.
    pub address_kinds: BTreeSet<RecordKind>,
    /// The types of the name's records, except A, AAAA and CNAME.
    pub beside: BTreeSet<RecordKind>,
    /// Whether the name is served over TLS.
    pub has_tls: bool,
    /// The TXT record sets with an ownership record of ExternalDNS.
    pub owned: Vec<RecordSet>,
    /// The object from which ExternalDNS publishes the name, if the cutover changes its annotations.
    pub published: Option<Published>,
    /// For each record type, the name of the record in which the mirror's ExternalDNS records its ownership.
    pub heir_names: BTreeMap<RecordKind, String>,
}

/// The options of a plan.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// The share of the mirror at each stage, in percent. If the last share is not 100, a stage with 100 is added.
    pub shares: Vec<Share>,
    /// Maximum TTL while the cutover runs, in seconds.
    pub ttl: u32,
    /// How long each stage waits after the resolver returns the new records, in seconds.
    pub soak: u64,
    /// The probe for every name. With `None`, the probe uses `https` if an object of the name declares TLS, otherwise `http`.
    pub probe: Option<Probing>,
    /// Probes for single names. They replace `probe` for these names.
    pub probes: BTreeMap<String, Probing>,
    /// Additional CA certificates that probes trust, as PEM.
    pub trusted: Vec<String>,
    /// The metrics query for the mirror's share.
    pub seen: Option<ShareQuery>,
    /// Whether a stage is allowed to end before its share is reached.
    pub short_soak: bool,
}

/// A name that a plan does not contain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// The name.
    pub name: String,
    /// Objects that contain the name, as text.
    pub by: Vec<String>,
    /// Why the plan does not contain the name.
    pub reason: String,
}

/// A plan, and the names that it does not contain.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The plan.
    pub plan: Plan<Cutover>,
    /// Names of objects in the cluster that cannot be changed. The user has not selected these names.
    pub left_out: Vec<LeftOut>,
}

/// Why a cutover cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No name has to change.
    #[error("no name has to change: {reason}")]
    Nothing {
        /// The reason.
        reason: String,
    },
    /// The plan would have too many names.
    #[error(
        "{names} names are too many for one cutover (maximum {}): its record would fill etcd",
        super::space::MOST_NAMES
    )]
    TooMany {
        /// Number of the names that change.
        names: usize,
    },
    /// The shares do not increase.
    #[error("each share must be between 1 and 100 %, and greater than the share before it")]
    Shares,
    /// A stage would end before caches have dropped the previous records.
    #[error(
        "the soak of each stage is {soak} s, but the TTL is {ttl} s: a stage would end before its share is reached"
    )]
    ShortSoak {
        /// Soak time of each stage, in seconds.
        soak: u64,
        /// Longest TTL during the cutover, in seconds.
        ttl: u64,
    },
    /// A name cannot be changed.
    #[error("`{name}`: {reason}")]
    Name {
        /// The name.
        name: String,
        /// The reason.
        reason: String,
    },
}

impl Refusal {
    /// Returns what to do about the refusal.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::ShortSoak { .. } => {
                Some("give a longer `--soak`, a shorter `--ttl`, or `--force short-soak`")
            }
            Self::TooMany { .. } => Some(
                "plan several cutovers, one after the other: `--names-file FILE` or `--name NAME,...` selects the names of each",
            ),
            Self::Shares => Some("give them like this: `--shares 10,50,100`"),
            Self::Nothing { .. } | Self::Name { .. } => None,
        }
    }
}

/// Plans a cutover. A name that cannot be changed is left out; if the user selected it, the plan is refused. Users of the
/// cluster can create objects with any host name, so one such object must not prevent the plan for the other names.
pub fn plan(facts: &Facts, options: &PlanOptions) -> Result<Planned, Refusal> {
    let mut shares = options.shares.clone();
    if shares.last() != Some(&100) {
        shares.push(100);
    }
    if !shares.is_sorted_by(|one, next| one < next) || shares.first() == Some(&0) {
        return Err(Refusal::Shares);
    }
    let (mut names, mut left_out) = (Vec::new(), facts.left_out.clone());
    let mut moved = 0_usize;
    for found in &facts.names {
        match name(facts, found, &shares, options) {
            Ok(Some(name)) => names.push(name),
            Ok(None) => moved = moved.saturating_add(1),
            Err(Refusal::Name { name, reason }) if !found.is_given => {
                left_out.push(LeftOut { name, by: found.by.clone(), reason });
            }
            Err(refusal) => return Err(refusal),
        }
    }
    if names.is_empty() {
        return Err(nothing(moved, left_out.first()));
    }
    if names.len() > MOST_NAMES {
        return Err(Refusal::TooMany { names: names.len() });
    }
    // A stage that changes no name is omitted, because its share is not possible.
    let changes = |stage: usize| {
        let before = stage.checked_sub(1);
        let differs = |name: &Name| match before {
            Some(before) => name.stages.get(stage) != name.stages.get(before),
            None => name.stages.get(stage).is_some_and(|sets| !have_same_data(sets, &name.before)),
        };
        names.iter().any(differs)
    };
    let kept: Vec<usize> = (0..shares.len()).filter(|stage| changes(*stage)).collect();
    let pick = |name: Name| {
        let stages = kept.iter().filter_map(|stage| name.stages.get(*stage).cloned()).collect();
        Name { stages, ..name }
    };
    let work = Cutover {
        zone: facts.zone.clone(),
        service: facts.service.clone(),
        resolver: facts.resolver,
        ttl: options.ttl,
        soak: options.soak,
        negative_ttl: facts.negative_ttl,
        trusted: options.trusted.clone(),
        owner_cache: if names.iter().any(|name| name.ownership.is_some()) { facts.owner_cache } else { 0 },
        heir: facts.heir.clone(),
        seen: options.seen.clone(),
        shares: kept.iter().filter_map(|stage| shares.get(*stage).copied()).collect(),
        names: names.into_iter().map(pick).collect(),
    };
    let ttl = work.stage_ttl().as_secs();
    if ttl > options.soak && !options.short_soak {
        return Err(Refusal::ShortSoak { soak: options.soak, ttl });
    }
    Ok(Planned { plan: Plan::new(&facts.cluster, Revision(0), work), left_out })
}

/// Returns why there is nothing to plan. `moved`: number of names that point to the mirror already.
fn nothing(moved: usize, left_out: Option<&LeftOut>) -> Refusal {
    let reason = match (moved, left_out) {
        (0, None) => "no object of the cluster contains a host name in the zone".to_string(),
        (0, Some(LeftOut { name, reason, .. })) => format!("`{name}`: {reason}"),
        (count, _) => all_of(count, "name points to the mirror already", "names point to the mirror already"),
    };
    Refusal::Nothing { reason }
}

/// Plans one name; `None` if it already points to the mirror.
fn name(
    facts: &Facts,
    found: &Found,
    shares: &[Share],
    options: &PlanOptions,
) -> Result<Option<Name>, Refusal> {
    let refused = |reason: &str| Refusal::Name { name: found.name.clone(), reason: reason.to_string() };
    let before = found.sets.clone();
    let Some(ttl) = before.iter().map(|set| set.ttl).max() else {
        return Err(refused("it has no A, AAAA or CNAME record"));
    };
    if let Some((at, what)) = found.targets.iter().find_map(|at| Some((at, target::refused(at)?))) {
        return Err(refused(&format!("its target on the mirror is {at}, {what}")));
    }
    let after = match aliases(facts, found) {
        Some(after) => after,
        None => targets(found, &before, ttl)?,
    };
    if after.iter().any(|set| set.kind == RecordKind::Cname) && found.name == facts.zone {
        return Err(refused("the name of a zone cannot be a CNAME (RFC 1034, section 3.6.2)"));
    }
    let kinds = |sets: &[RecordSet]| -> BTreeSet<RecordKind> { sets.iter().map(|set| set.kind).collect() };
    if found.published.is_some() && kinds(&before) != kinds(&after) {
        // With `--policy=upsert-only`, ExternalDNS deletes no record, and providers have their own rules for aliases.
        return Err(refused(
            "its record types would change, and ExternalDNS does not always delete the records of the old types",
        ));
    }
    let becomes_cname = after.iter().any(|set| set.kind == RecordKind::Cname);
    if let (true, Some(kind)) = (becomes_cname, found.beside.first()) {
        let reason = format!(
            "it has a {kind} record, and a name with a CNAME record cannot have other records (RFC 1034, section 3.6.2)"
        );
        return Err(refused(&reason));
    }
    if have_same_data(&before, &after) {
        return Ok(None);
    }
    let lowered =
        |sets: &[RecordSet]| -> Vec<RecordSet> { sets.iter().map(|set| set.lowered(options.ttl)).collect() };
    let split = Split::of(&facts.service);
    let stages = shares.iter().map(|share| mix(&lowered(&before), &lowered(&after), *share, split)).collect();
    let probe = probing(&found.name, found.has_tls, options.probe.as_ref(), &options.probes);
    let ownership = ownership(found, &after, facts.heir.as_deref());
    Ok(Some(Name {
        name: found.name.clone(),
        by: found.by.clone(),
        on_mirror: found.on_mirror.clone(),
        before,
        stages,
        after,
        ownership,
        published: found.published.clone(),
        probe: probe.at(&found.targets),
    }))
}

/// Plans the change of the ownership records of a name; `None` if the name has no ownership records.
fn ownership(found: &Found, after: &[RecordSet], heir: Option<&str>) -> Option<Ownership> {
    let before = found.owned.clone();
    let record = before.iter().flat_map(|set| &set.data).find(|text| owner(text).is_some())?;
    let ttl = before.iter().map(|set| set.ttl).max()?;
    let held: Vec<RecordSet> =
        before.iter().map(|set| map_owners(set, |text| Some(with_owner(text, HOLDER)))).collect();
    let Some(heir) = heir else {
        let after = held.clone();
        return Some(Ownership { before, held, after });
    };
    // TXT records that are not ownership records stay the same. The ownership records of the new owner (`heir`) are added at the
    // names that this owner uses.
    let rest = before.iter().map(|set| map_owners(set, |_| None)).filter(|set| !set.data.is_empty());
    let mut sets: BTreeMap<String, RecordSet> = rest.map(|set| (set.name.clone(), set)).collect();
    let mut names: BTreeSet<&String> =
        after.iter().filter_map(|set| found.heir_names.get(&set.kind)).collect();
    // Before v0.19, ExternalDNS recorded the owner of an alias in the same way as the owner of a CNAME (issue 2903).
    if after.iter().any(|set| set.alias.is_some()) {
        let of_cname = found.heir_names.get(&RecordKind::Cname);
        names.extend(of_cname.filter(|name| before.iter().any(|set| set.name == **name)));
    }
    for name in names {
        let empty = || RecordSet::new(name, RecordKind::Txt, ttl, Vec::new());
        let set = sets.entry(name.clone()).or_insert_with(empty);
        set.data.push(with_owner(record, heir));
        set.data.sort();
    }
    Some(Ownership { before, held, after: sets.into_values().collect() })
}

/// Returns a TXT record set with changed ownership records. Other texts stay the same.
fn map_owners(set: &RecordSet, change: impl Fn(&String) -> Option<String>) -> RecordSet {
    let data = set
        .data
        .iter()
        .filter_map(|text| if owner(text).is_some() { change(text) } else { Some(text.clone()) });
    let mut data: Vec<String> = data.collect();
    data.sort();
    RecordSet { data, ..set.clone() }
}

/// Returns the probe of a name, without addresses. `probes`: probes for single names; `probe`: the probe for the other names.
pub fn probing(
    name: &str,
    has_tls: bool,
    probe: Option<&Probing>,
    probes: &BTreeMap<String, Probing>,
) -> Probing {
    probes.get(name).or(probe).cloned().unwrap_or_else(|| Probing::default_of(has_tls))
}

/// Returns the aliases that point to the mirror; `None` if no alias is possible, for example because the target is not a load
/// balancer that Route 53 accepts as an alias target. An alias stays an alias, even if the target has no address of its type,
/// because ExternalDNS creates both types for every load balancer. An address record becomes an alias if the target has an
/// address of this type. A CNAME stays a CNAME.
fn aliases(facts: &Facts, found: &Found) -> Option<Vec<RecordSet>> {
    let ZoneService::Route53 { .. } = facts.service else { return None };
    let (Some(target), 1) = (found.targets.first(), found.targets.len()) else { return None };
    let zone = load_balancer_zone(target)?;
    let is_alias = |set: &&RecordSet| set.alias.is_some() || found.address_kinds.contains(&set.kind);
    let mut kinds: BTreeSet<RecordKind> = found.sets.iter().filter(is_alias).map(|set| set.kind).collect();
    // The mirror's ExternalDNS creates both types after the cutover. A rollback deletes only record types that the plan contains.
    if facts.heir.is_some() && !found.owned.is_empty() && !kinds.is_empty() {
        kinds.extend([RecordKind::A, RecordKind::Aaaa]);
    }
    let checks_health =
        found.sets.iter().any(|set| set.alias.as_ref().is_some_and(|alias| alias.checks_health));
    let of = |kind: RecordKind| {
        let alias = Some(Alias { zone: zone.to_string(), checks_health });
        RecordSet { alias, ..RecordSet::new(&found.name, kind, ALIAS_TTL, vec![target.clone()]) }
    };
    let sets: Vec<RecordSet> = kinds.into_iter().map(of).collect();
    (!sets.is_empty()).then_some(sets)
}

/// Returns the record sets that point to the mirror. Each set has the TTL of the old set of its type, or `ttl` if there is no
/// such set.
fn targets(found: &Found, before: &[RecordSet], ttl: u32) -> Result<Vec<RecordSet>, Refusal> {
    let refused = |reason: &str| Refusal::Name { name: found.name.clone(), reason: reason.to_string() };
    let record = |data: &String| {
        let kind = match data.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => RecordKind::A,
            Ok(IpAddr::V6(_)) => RecordKind::Aaaa,
            Err(_) => RecordKind::Cname,
        };
        let old = before.iter().find(|set| set.kind == kind);
        // The server keeps the case of the name's letters.
        let name = before.first().and_then(|set| set.spelling.as_ref()).unwrap_or(&found.name);
        Record::new(name, kind, old.map_or(ttl, |set| set.ttl), data)
    };
    let records: Vec<Record> = found.targets.iter().map(record).collect();
    let aliases = records.iter().filter(|record| record.kind == RecordKind::Cname).count();
    match aliases {
        _ if records.is_empty() => Err(refused("no object of the mirror with this name has an address")),
        _ if records.len() >= TOO_MANY_TARGETS => {
            Err(refused(&format!("the mirror has {TOO_MANY_TARGETS} or more addresses for this name")))
        }
        0 => Ok(RecordSet::group(&records)),
        1 if records.len() == 1 => Ok(RecordSet::group(&records)),
        1 => Err(refused("the mirror has both addresses and a load balancer host name for this name")),
        _ => Err(refused(
            "the mirror has several load balancers for this name, and a name can have only one CNAME",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Work as _;

    fn record(kind: RecordKind, ttl: u32, data: &str) -> Record {
        Record::new("www.example.com", kind, ttl, data)
    }

    fn facts(records: &[Record], targets: &[&str]) -> Facts {
        let found = Found {
            name: "www.example.com".into(),
            by: vec!["Ingress `default/web`".into()],
            is_given: true,
            on_mirror: vec!["Ingress `default/web`".into()],
            sets: RecordSet::group(records),
            targets: targets.iter().map(ToString::to_string).collect(),
            address_kinds: BTreeSet::from([RecordKind::A]),
            beside: BTreeSet::new(),
            has_tls: true,
            owned: Vec::new(),
            published: None,
            heir_names: BTreeMap::new(),
        };
        Facts {
            cluster: "uid".into(),
            zone: "example.com".into(),
            service: ZoneService::Rfc2136 { server: "192.0.2.53:53".parse().unwrap(), key: None },
            resolver: "192.0.2.54:53".parse().unwrap(),
            heir: None,
            owner_cache: 0,
            negative_ttl: 60,
            names: vec![found],
            left_out: Vec::new(),
        }
    }

    fn options(shares: &[Share]) -> PlanOptions {
        PlanOptions {
            shares: shares.to_vec(),
            ttl: 60,
            soak: 600,
            probe: None,
            probes: BTreeMap::new(),
            trusted: Vec::new(),
            seen: None,
            short_soak: false,
        }
    }

    fn planned(facts: &Facts, shares: &[Share]) -> Cutover {
        plan(facts, &options(shares)).unwrap().plan.work
    }

    fn stages(work: &Cutover) -> Vec<String> {
        let batch =
            |batch: Option<usize>| batch.map_or_else(String::new, |batch| format!(" {}", work.shares[batch]));
        work.stages().iter().map(|stage| format!("{}{}", stage.name, batch(stage.batch))).collect()
    }

    #[test]
    fn unreachable_shares_are_left_out() {
        let facts = facts(&[record(RecordKind::A, 3600, "192.0.2.1")], &["198.51.100.1"]);
        let work = planned(&facts, &[1, 10, 50, 100]);
        assert_eq!(work.shares, [50, 100]);
        assert_eq!(
            stages(&work),
            [
                "ttl",
                "caches",
                "return",
                "share 50",
                "confirm 50",
                "soak 50",
                "share 100",
                "confirm 100",
                "soak 100",
                "final"
            ]
        );
        assert_eq!(work.longest_ttl().as_secs(), 3600);
        let name = &work.names[0];
        assert_eq!(
            name.stages[0],
            [RecordSet {
                data: vec!["192.0.2.1".into(), "198.51.100.1".into()],
                ..name.before[0].with_ttl(60)
            }]
        );
        assert_eq!(name.stages[1], [name.after[0].with_ttl(60)]);
        assert_eq!(
            (name.after[0].ttl, &name.probe.to_string(), &name.probe.at),
            (3600, &"https:443/".to_string(), &vec!["198.51.100.1".to_string()])
        );
    }

    #[test]
    fn short_ttl_is_not_lowered() {
        let facts = facts(&[record(RecordKind::Cname, 30, "old.example.net")], &["mirror.example.net"]);
        let work = planned(&facts, &[10, 100]);
        assert_eq!(stages(&work), ["return", "share 100", "confirm 100", "soak 100"]);
        let back: Vec<String> = work.way_back().into_iter().map(|stage| stage.name).collect();
        assert_eq!(back, ["share", "return", "resolve"]);
    }

    #[test]
    fn every_step_is_the_inverse_of_its_undo_and_starts_where_the_previous_one_ends() {
        let old = [
            record(RecordKind::A, 300, "192.0.2.1"),
            record(RecordKind::A, 300, "192.0.2.2"),
            record(RecordKind::Aaaa, 300, "2001:db8::1"),
        ];
        let work = planned(&facts(&old, &["198.51.100.1"]), &[10, 33, 50, 100]);
        let name = &work.names[0];
        let mut now = name.before.clone();
        for stage in work.stages() {
            for step in work.steps(&stage) {
                let crate::operation::Action::Do(change) = step.action else { continue };
                for set in change.sets {
                    let at = now.iter().position(|other| Some((other.name.as_str(), other.kind)) == set.of());
                    assert_eq!(at.map(|at| now.remove(at)), set.from, "{}", step.id);
                    now.extend(set.to);
                }
                now.sort();
            }
        }
        assert_eq!(now, name.after);
    }

    #[test]
    fn alias_of_a_load_balancer_stays_one() {
        let balancer = |name: &str| format!("{name}.eu-west-1.elb.amazonaws.com");
        let (old, new) = (balancer("old"), balancer("new"));
        let mut of_route53 = facts(&[], &[&new]);
        of_route53.service = ZoneService::Route53 { id: "Z1".into(), private: false };
        let alias = Alias { zone: "Z32O12XQLNTSW2".into(), checks_health: true };
        let set = |kind, data: &String| RecordSet {
            alias: Some(alias.clone()),
            ..RecordSet::new("www.example.com", kind, ALIAS_TTL, vec![data.clone()])
        };
        of_route53.names[0].sets = vec![set(RecordKind::A, &old), set(RecordKind::Aaaa, &old)];
        let work = planned(&of_route53, &[1, 100]);
        assert_eq!(
            work.names[0].after,
            [set(RecordKind::A, &new), set(RecordKind::Aaaa, &new)],
            "both stay aliases"
        );
        assert_eq!(stages(&work)[..2], ["return", "share 1"], "an alias has no TTL of its own");
        let shares = work.names[0].shares_of(&work.names[0].stages[0]);
        assert_eq!((shares[&RecordKind::A], shares[&RecordKind::Aaaa]), (1, 1));
        // The mirror's ExternalDNS would create the AAAA alias that the name does not have, and a rollback must delete it.
        let mut owned = of_route53.clone();
        owned.heir = Some("green".into());
        let blue = "\"heritage=external-dns,external-dns/owner=blue\"".to_string();
        owned.names[0].owned = vec![RecordSet::new("a-www.example.com", RecordKind::Txt, 60, vec![blue])];
        owned.names[0].sets = vec![set(RecordKind::A, &old)];
        let work = planned(&owned, &[50]);
        assert_eq!(work.names[0].after, [set(RecordKind::A, &new), set(RecordKind::Aaaa, &new)]);
        assert!(work.names[0].kinds().contains(&RecordKind::Aaaa));
        assert!(
            work.names[0].stages[0].iter().all(|set| set.kind == RecordKind::A),
            "both sides have only A"
        );
        // The target has no IPv6 address, so the AAAA record does not become an alias.
        of_route53.names[0].sets = vec![
            set(RecordKind::A, &old),
            RecordSet::new("www.example.com", RecordKind::Aaaa, 60, vec!["2001:db8::1".into()]),
        ];
        assert_eq!(planned(&of_route53, &[1, 100]).names[0].after, [set(RecordKind::A, &new)]);
        // An address record becomes an alias. While clients use both sides, both sides have the TTL of the alias.
        of_route53.names[0].sets = RecordSet::group(&[record(RecordKind::A, 30, "192.0.2.1")]);
        let work = planned(&of_route53, &[10]);
        let ttls: Vec<u32> = work.names[0].stages[0].iter().map(|set| set.ttl).collect();
        assert_eq!(ttls, [ALIAS_TTL, ALIAS_TTL]);
        of_route53.names[0].sets = RecordSet::group(&[record(RecordKind::Cname, 30, "old.example.net")]);
        assert_eq!(
            planned(&of_route53, &[10]).names[0].after[0].kind,
            RecordKind::Cname,
            "a CNAME stays one"
        );
    }

    #[test]
    fn plan_is_refused_with_the_reason() {
        let reason = |facts: &Facts, options: &PlanOptions| plan(facts, options).unwrap_err().to_string();
        let www = || vec![record(RecordKind::A, 60, "192.0.2.1")];
        assert!(reason(&facts(&www(), &[]), &options(&[])).contains("no object of the mirror"));
        assert!(reason(&facts(&[], &["198.51.100.1"]), &options(&[])).contains("no A, AAAA or CNAME"));
        assert!(
            reason(&facts(&www(), &["192.0.2.1"]), &options(&[])).contains("points to the mirror already")
        );
        assert!(
            reason(&facts(&www(), &["a.example.net", "b.example.net"]), &options(&[]))
                .contains("only one CNAME")
        );
        assert!(reason(&facts(&www(), &["a.example.net", "198.51.100.1"]), &options(&[])).contains("both"));
        let mut apex = facts(&www(), &["a.example.net"]);
        apex.names[0].name = "example.com".into();
        assert!(reason(&apex, &options(&[])).contains("cannot be a CNAME"));
        let mut beside = facts(&www(), &["a.example.net"]);
        beside.names[0].beside.insert(RecordKind::Txt);
        assert!(reason(&beside, &options(&[])).contains("it has a TXT record, and a name with a CNAME"));
        let good = facts(&www(), &["198.51.100.1"]);
        let mut many = good.clone();
        many.names = vec![good.names[0].clone(); MOST_NAMES + 1];
        let refusal = plan(&many, &options(&[])).unwrap_err();
        assert_eq!(refusal, Refusal::TooMany { names: MOST_NAMES + 1 });
        assert!(refusal.hint().unwrap().contains("`--names-file FILE`"));
        assert_eq!(plan(&good, &options(&[50, 10])).unwrap_err(), Refusal::Shares);
        let short = PlanOptions { soak: 30, ..options(&[]) };
        assert_eq!(plan(&good, &short).unwrap_err(), Refusal::ShortSoak { soak: 30, ttl: 60 });
        assert!(plan(&good, &PlanOptions { short_soak: true, ..short }).is_ok());
    }

    /// An object of any user can contain any name and any target.
    #[test]
    fn name_of_an_object_that_cannot_be_changed_is_left_out() {
        let mut some = facts(&[record(RecordKind::A, 60, "192.0.2.1")], &["198.51.100.1"]);
        for target in ["127.0.0.1", "169.254.169.254", "fe80::1"] {
            let mut other = some.names[0].clone();
            other.name = "other.example.com".into();
            other.targets = BTreeSet::from([target.to_string()]);
            some.names.truncate(1);
            some.names.push(Found { is_given: false, ..other });
            let planned = plan(&some, &options(&[100])).unwrap();
            assert_eq!(planned.plan.work.names.len(), 1);
            let [left] = &planned.left_out[..] else { panic!("{:?}", planned.left_out) };
            assert!(left.name == "other.example.com" && left.reason.contains(target), "{left:?}");
            some.names[1].is_given = true;
            assert!(matches!(plan(&some, &options(&[100])), Err(Refusal::Name { .. })), "{target}");
        }
    }
}
