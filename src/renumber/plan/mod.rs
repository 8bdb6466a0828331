//! Plans a renumbering. Computes the move of every Service only from a survey and the options of the plan.

mod error;
mod overlaps;
mod records;
mod shadow;
mod split;
mod tier_order;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use compact_str::format_compact;

pub use error::PlanError;
pub(super) use shadow::{give_temporaries, make_shadow, shadow_spec, spare_addresses};

use self::overlaps::overlaps;
use self::records::{record_changes, unread};
use self::split::{Split, out_of_band, split};

pub use self::tier_order::open_to_tiers;
use super::hold::{Choice, Hold, choose};
use super::intention::{BitmapChange, Move, OtherRange, Renumbering, Turn};
use super::kube_proxy::{DataPlane, Obstacle, judge};
use super::target;
use super::tier::Tiers;
use crate::ip::remap::{Rank, Wanted, remap};
use crate::ip::{Family, Item, Items, ServiceCidr};
use crate::operation::Plan;
use crate::survey::{AddressRecord, BitmapRecord, CidrRecord, Era, ServiceRecord, Survey};
use crate::wire::Text;
use crate::wire::bitmap::Bitmap;
use crate::wire::objects::ALLOCATOR;

/// The kind of plan, as written in the plan's header.
pub const KIND: &str = "renumber";

/// The options of a plan.
#[derive(Debug, Clone)]
pub struct PlanOptions {
    /// The new range.
    pub to: ServiceCidr,
    /// Requested new addresses, by `namespace/name`.
    pub pins: BTreeMap<String, IpAddr>,
    /// Largest number of Services that move together, between two waits for the data plane.
    pub batch_size: usize,
    /// The tiers that order the Services, if there are any.
    pub tiers: Option<Tiers>,
    /// The requested hold for every Service. Planning fails if a Service does not support this hold. With `None`, the hold
    /// depends on the Service.
    pub hold: Option<Hold>,
    /// A KubeProxyConfiguration that replaces the cluster's configuration.
    pub proxy_config: Option<String>,
    /// Whether Services also move if the new range contains their address.
    pub move_all: bool,
    /// Whether to accept that some nodes might not hold old addresses, for example because the data plane was not tested.
    pub accept_gap: bool,
}

impl PlanOptions {
    /// Returns the default options for a new range.
    pub fn new(to: ServiceCidr) -> Self {
        Self {
            to,
            pins: BTreeMap::new(),
            batch_size: 50,
            tiers: None,
            hold: None,
            proxy_config: None,
            move_all: false,
            accept_gap: false,
        }
    }
}

/// Creates the plan.
pub fn plan(survey: &Survey, options: &PlanOptions) -> Result<Plan<Renumbering>, PlanError> {
    let cluster = survey.cluster_id.clone().ok_or(PlanError::NoIdentity)?;
    target::check(survey, &options.to)?;
    let family = options.to.family();
    let Split { leaving, staying, skipped } = split(survey, options);
    let arranged = tier_order::arrange(survey, options.tiers.as_ref(), leaving)?;
    let overlaps = overlaps(survey, &options.to);
    // Growth on the same base concerns no data plane, because no address is held, now or in a sweep.
    let old = || survey.service_ranges().into_iter().filter(|range| range.family() == family);
    let moves_none = arranged.services.is_empty() && old().all(|range| options.to.covers(&range));
    let (data_plane, gap, no_external_ip) =
        if moves_none { Routes::default() } else { routing(survey, options, !overlaps.is_empty())? };
    let taken = in_use(survey, &options.to);
    let mut moves = make_moves(survey, options, &arranged.services, no_external_ip, &taken)?;
    arranged.name_tiers(&mut moves);
    let ranges = survey.service_ranges();
    let flag_before = flag(survey);
    let mut work = Renumbering {
        prefix: survey.layout.prefix().to_string(),
        era: survey.era.era,
        family,
        from: ranges.into_iter().filter(|range| range.family() == family).collect(),
        to: options.to,
        flag: flag_after(&flag_before, options.to),
        flag_before,
        others: Vec::new(),
        batch_size: options.batch_size.max(1),
        tiers: arranged.names,
        encoding: survey.encoding,
        api_version: survey.ip_address_version.clone().unwrap_or_else(|| "networking.k8s.io/v1".to_string()),
        bitmap: bitmap_change(survey, &options.to)?,
        records: record_changes(survey, &options.to, &moves),
        overlaps,
        unread: unread(survey),
        node_local_dns: survey.has_node_local_dns,
        data_plane,
        gap_accepted: gap.is_some() && options.accept_gap,
        gap,
        shadows_only: no_external_ip.is_some(),
        hold_asked: options.hold,
        moves,
        skipped,
        stays: staying.len(),
        out_of_band: out_of_band(survey, &options.to, &staying),
        amendments: 0,
    };
    work.others = others(survey, family, &work.range_name());
    give_temporaries(&mut work, survey, taken)?;
    Ok(Plan::new(&cluster, survey.revision, work))
}

/// Chooses the new address of every Service, and how its old address is held.
pub(super) fn make_moves(
    survey: &Survey,
    options: &PlanOptions,
    leaving: &[&ServiceRecord],
    no_external_ip: Option<&'static str>,
    taken: &HashSet<IpAddr>,
) -> Result<Vec<Move>, PlanError> {
    check_movers(leaving)?;
    let family = options.to.family();
    let objects = objects_of(survey, family, leaving)?;
    let holds = choose_holds(survey, options, leaving, no_external_ip)?;
    let addresses = map_addresses(survey, options, leaving, taken)?;
    let mut moves = Vec::with_capacity(leaving.len());
    for (((service, hold), new_address), object) in leaving.iter().zip(holds).zip(&addresses).zip(objects) {
        moves.push(Move {
            turn: turn_of(survey, service),
            old_object_missing: survey.era.era != Era::Bitmap && object.is_none(),
            old_object_created: object.and_then(|object| object.created),
            ..make_move(service, family, hold, *new_address)
        });
    }
    Ok(moves)
}

/// Three texts: the data plane, the reason why old addresses might not be held everywhere (the gap), and the reason why external
/// IPs cannot hold addresses.
type Routes = (Option<String>, Option<String>, Option<&'static str>);

/// The reason why a hold needs a shadow if ClusterIPs are announced. For traffic from outside the cluster, an external IP with
/// `externalTrafficPolicy: Local` reaches only endpoints on the node that receives the traffic.
const ANNOUNCED: &str = "Calico announces ClusterIPs to routers; from outside, an external IP is reachable only through nodes \
                         that run an endpoint";

fn routing(survey: &Survey, options: &PlanOptions, is_announced: bool) -> Result<Routes, PlanError> {
    let announced = is_announced.then_some(ANNOUNCED);
    match judge(survey, options.to.family(), options.proxy_config.as_deref()) {
        // This result also applies with `--accept-gap`, because without rules for external IPs, no old address would answer.
        DataPlane::KubeProxy { about, no_external_ip: Some(gate @ Obstacle::Gate) } => {
            Ok((Some(about), None, Some(gate.reason())))
        }
        DataPlane::KubeProxy { about, no_external_ip } => {
            let obstacle = no_external_ip.map(Obstacle::reason).or(announced);
            if options.accept_gap {
                return Ok((Some(about), obstacle.map(str::to_string), None));
            }
            Ok((Some(about), None, obstacle))
        }
        DataPlane::Unknown(reason) if options.accept_gap => Ok((None, Some(reason), None)),
        DataPlane::Unknown(reason) => Ok((None, Some(reason), announced)),
        DataPlane::Unsupported(reason) if options.accept_gap => Ok((None, Some(reason), None)),
        DataPlane::Unsupported(reason) => Err(PlanError::DataPlane { reason }),
    }
}

/// Refuses Services whose stored addresses contradict each other, because a move would make this worse.
fn check_movers(movers: &[&ServiceRecord]) -> Result<(), PlanError> {
    let mut seen: Vec<(IpAddr, &ServiceRecord)> = Vec::with_capacity(movers.len());
    for service in movers {
        let broken = |reason: String| PlanError::Broken { subject: service.subject(), reason };
        let first = service.spec.cluster_ips.first();
        if first.is_some_and(|first| Some(first) != service.spec.cluster_ip.as_ref()) {
            return Err(broken("`clusterIP` and `clusterIPs[0]` differ".to_string()));
        }
        seen.extend(service.addresses.iter().map(|address| (*address, *service)));
    }
    // A sorted list needs only a fraction of the time and memory that a map needs.
    seen.sort_by_key(|(address, _)| *address);
    let twice = seen.windows(2).find_map(|pair| match pair {
        [(address, one), (other, two)] if address == other => Some((address, one, two)),
        _ => None,
    });
    match twice {
        None => Ok(()),
        Some((address, one, two)) => Err(PlanError::Broken {
            subject: two.subject(),
            reason: format!("`{address}` is also the address of `{}`", one.subject()),
        }),
    }
}

/// Returns, for each Service that moves, the IPAddress object of its old address. Refuses an object that contradicts its Service,
/// because the repair loop may be about to change the object.
fn objects_of<'s>(
    survey: &'s Survey,
    family: Family,
    movers: &[&ServiceRecord],
) -> Result<Vec<Option<&'s AddressRecord>>, PlanError> {
    let mut objects: Vec<(IpAddr, &AddressRecord)> =
        survey.addresses.iter().filter_map(|object| Some((object.address?, object))).collect();
    objects.sort_unstable_by_key(|(address, _)| *address);
    let object_of = |address: IpAddr| {
        let place = objects.binary_search_by_key(&address, |(own, _)| *own).ok()?;
        objects.get(place).map(|(_, object)| *object)
    };
    let mut found = Vec::with_capacity(movers.len());
    for service in movers {
        for object in service.addresses.iter().filter_map(|address| object_of(*address)) {
            let is_its = object.parent.0 == service.namespace && object.parent.1 == service.name;
            if !is_its || object.managed_by != ALLOCATOR {
                return Err(PlanError::Broken {
                    subject: service.subject(),
                    reason: format!(
                        "IPAddress `{}` is for `{}/{}` and managed by `{}`",
                        object.name, object.parent.0, object.parent.1, object.managed_by
                    ),
                });
            }
        }
        found.push(service.address(family).and_then(object_of));
    }
    Ok(found)
}

/// The reason why a hold needs a shadow in the bitmap era if the old address is also in the new range. Without a Service that has
/// the address as its ClusterIP, an API server frees its bit after a few minutes, and gives the address to another Service
/// (`runOnce`, `pkg/registry/core/service/ipallocator/controller/repair.go`, v1.32.2).
const IN_THE_NEW_RANGE: &str =
    "the new range has the old address, too, and an API server would free it if it were an external IP";

fn choose_holds(
    survey: &Survey,
    options: &PlanOptions,
    movers: &[&ServiceRecord],
    no_external_ip: Option<&'static str>,
) -> Result<Vec<(Hold, &'static str)>, PlanError> {
    let mut holds = Vec::with_capacity(movers.len());
    let mut refused: Vec<(String, &'static str)> = Vec::new();
    for service in movers {
        let old = service.address(options.to.family());
        let is_within =
            survey.era.era == Era::Bitmap && old.is_some_and(|old| options.to.is_allocatable(old, true));
        let no_external_ip = no_external_ip.or(is_within.then_some(IN_THE_NEW_RANGE));
        match choose(service, options.hold, no_external_ip) {
            Choice::Hold(hold, reason) => holds.push((hold, reason)),
            Choice::Refuse(reason) => refused.push((service.subject(), reason)),
        }
    }
    match refused.first() {
        None => Ok(holds),
        Some((first, reason)) => {
            Err(PlanError::CannotHold { count: refused.len(), first: first.clone(), reason })
        }
    }
}

fn map_addresses(
    survey: &Survey,
    options: &PlanOptions,
    movers: &[&ServiceRecord],
    taken: &HashSet<IpAddr>,
) -> Result<Vec<IpAddr>, PlanError> {
    let family = options.to.family();
    let ranges = survey.service_ranges();
    let mut pins = options.pins.clone();
    let first = options.to.first();
    if let Some(pin) = pins.get("default/kubernetes").copied().filter(|pin| Some(*pin) != first) {
        return Err(PlanError::KubernetesPin { pin, first });
    }
    let mut wanted = Vec::with_capacity(movers.len());
    for service in movers {
        let Some(old) = service.address(family) else { continue };
        wanted.push(Wanted {
            old,
            old_range: ranges.iter().copied().find(|range| range.contains(old)),
            rank: match turn_of(survey, service) {
                Turn::Kubernetes => Rank::First,
                Turn::ClusterDns => Rank::Preferred,
                Turn::Any => Rank::Ordinary,
            },
            pin: pins.remove(&service.subject()).filter(|_| !service.is_kubernetes()),
        });
    }
    if let Some((subject, _)) = pins.pop_first() {
        return Err(PlanError::UnknownPin { subject });
    }
    Ok(remap(&options.to, capacity(survey, &options.to), taken, &wanted)?)
}

/// Returns how many addresses of the range can be allocated. With a bitmap, this is the number of bits in the bitmap.
pub(super) fn capacity(survey: &Survey, to: &ServiceCidr) -> u128 {
    to.allocatable(survey.era.era != Era::Objects)
}

/// Returns the addresses of the range that are in use by any Service or IPAddress. External IPs are included, because no address
/// must be held twice. External IPs of sentinels are not included. Under dual write, addresses with a bit are also in use, because
/// no API server clears a bit without a Service.
pub(super) fn in_use(survey: &Survey, to: &ServiceCidr) -> HashSet<IpAddr> {
    let services = survey.services.iter().flat_map(|service| service.addresses.iter().copied());
    let listing = survey.services.iter().filter(|service| !service.is_sentinel());
    let external = listing.flat_map(|service| &service.spec.external_ips);
    let objects = survey.addresses.iter().filter_map(|object| object.address);
    let external = external.filter_map(|text| text.parse().ok());
    let all = services.chain(objects).chain(external).chain(with_bit(survey, to.family()));
    all.filter(|address| to.contains(*address)).collect()
}

/// Returns the addresses of the family that have a bit under dual write.
fn with_bit(survey: &Survey, family: Family) -> Vec<IpAddr> {
    let bitmap = survey.address_bitmap(family).filter(|_| survey.era.era == Era::DualWrite);
    let Some((items, Ok(bits))) = bitmap.and_then(BitmapRecord::read) else { return Vec::new() };
    let address = |bit| match items.item(bit)? {
        Item::Address(address) => Some(address),
        Item::Port(_) => None,
    };
    bits.iter_set().filter_map(address).collect()
}

pub(super) fn turn_of(survey: &Survey, service: &ServiceRecord) -> Turn {
    match () {
        () if service.is_kubernetes() => Turn::Kubernetes,
        () if survey.is_cluster_dns(service) => Turn::ClusterDns,
        () => Turn::Any,
    }
}

/// Returns the value of `--service-cluster-ip-range`, as recorded in the cluster.
pub fn flag(survey: &Survey) -> Vec<ServiceCidr> {
    match survey.service_cidrs.iter().find(|cidr| cidr.name == "kubernetes") {
        Some(cidr) => cidr.ranges.clone(),
        // `serviceips` is the first range of the flag, `secondaryserviceips` the second.
        None => ["serviceips", "secondaryserviceips"]
            .iter()
            .filter_map(|name| survey.bitmaps.iter().find(|bitmap| bitmap.name == *name)?.cidr())
            .collect(),
    }
}

/// Returns the ServiceCIDRs of the family, except the ServiceCIDR that API servers create from their flag, and the ServiceCIDR `own`,
/// which an earlier operation can have left.
fn others(survey: &Survey, family: Family, own: &str) -> Vec<OtherRange> {
    let is_others = |cidr: &&CidrRecord| cidr.name != "kubernetes" && cidr.name != own && !cidr.terminating;
    let created = survey.service_cidrs.iter().filter(is_others);
    let of_family = created.map(|cidr| {
        let (ranges, kept) = cidr.ranges.iter().copied().partition(|range| range.family() == family);
        OtherRange { name: cidr.name.clone(), ranges, kept }
    });
    of_family.filter(|other| !other.ranges.is_empty()).collect()
}

/// Returns the value of `--service-cluster-ip-range` after the renumbering: the new range replaces the range of its family.
fn flag_after(before: &[ServiceCidr], to: ServiceCidr) -> Vec<ServiceCidr> {
    let mut ranges = before.to_vec();
    match ranges.iter_mut().find(|range| range.family() == to.family()) {
        Some(range) => *range = to,
        None => ranges.push(to),
    }
    ranges
}

/// Returns the list in which the address `to` replaces the address `from`.
pub(super) fn renamed(list: &[Text], from: IpAddr, to: IpAddr) -> Vec<Text> {
    let other = |text: &Text| if text.parse() == Ok(from) { format_compact!("{to}") } else { text.clone() };
    list.iter().map(other).collect()
}

fn make_move(
    service: &ServiceRecord,
    family: Family,
    (hold, reason): (Hold, &'static str),
    new_address: IpAddr,
) -> Move {
    let old_address = service.address(family).unwrap_or(new_address);
    let without_list = service.spec.cluster_ips.is_empty();
    let old = service.listed();
    let shadow = match hold {
        Hold::ExternalIp => None,
        Hold::Shadow => Some(Box::new(make_shadow(service, family, new_address))),
    };
    Move {
        namespace: service.namespace.clone(),
        name: service.name.clone(),
        uid: service.uid.clone(),
        new: renamed(&old, old_address, new_address),
        old,
        hold,
        hold_reason: reason.into(),
        old_address,
        new_address,
        traffic_policy: service.spec.external_traffic_policy.clone(),
        tier: Text::default(),
        turn: Turn::Any,
        sweep: 0,
        without_list,
        old_object_missing: false,
        old_object_created: None,
        shadow,
    }
}

/// Computes the content that the family's RangeAllocation must have once the API servers have the new range.
fn bitmap_change(survey: &Survey, to: &ServiceCidr) -> Result<Option<BitmapChange>, PlanError> {
    if survey.era.era == Era::Objects {
        return Ok(None);
    }
    let family = to.family();
    let refuse = |reason: String| PlanError::Bitmap { family, reason };
    let record = survey.address_bitmap(family).ok_or_else(|| refuse("it does not exist".to_string()))?;
    let items = Items::Addresses(*to);
    let mut bits = Bitmap::empty(items.capacity());
    let there = survey.services.iter().flat_map(|service| &service.addresses);
    for bit in there.filter_map(|address| items.bit(Item::Address(*address))) {
        bits.set(bit, true);
    }
    Ok(Some(BitmapChange {
        name: record.name.clone(),
        from: record.range.clone(),
        data_before: record.data.clone(),
        data_after: bits.to_bytes(),
    }))
}
