//! Amazon Route 53: reads the record sets of hosted zones, and changes them.
//!
//! Credentials come from the same sources as for the AWS CLI: the environment, a profile, or a role of the Pod or of the machine.
//! Credentials are never printed. One request deletes the present record sets and creates the new ones. Route 53 executes such a
//! request completely or not at all. It rejects the request if a set to delete differs from the present set.

mod error;
mod freshness;
mod limits;
mod load_balancers;
mod set;

use std::fmt;

use aws_config::SdkConfig;
use aws_config::retry::RetryConfig;
use aws_sdk_route53::Client;
use aws_sdk_route53::client::customize::CustomizableOperation;
use aws_sdk_route53::config::{Builder, Config};
use aws_sdk_route53::operation::change_resource_record_sets::builders::ChangeResourceRecordSetsFluentBuilder;
use aws_sdk_route53::operation::change_resource_record_sets::{
    ChangeResourceRecordSetsError, ChangeResourceRecordSetsOutput,
};
use aws_sdk_route53::types::{self, Change, ChangeAction, ChangeBatch, ChangeStatus};

pub use error::Route53Error;
use limits::{Space, in_time};
pub use load_balancers::load_balancer_zone;
pub use set::Listed;

use self::freshness::Freshness;
use crate::aws::{BodyLimit, configuration};
use crate::nameserver::{RecordKind, RecordSet, SetChange, Weight, canonical};

/// TTL of an alias for a load balancer, in seconds (Route 53 Developer Guide, "Values specific for simple alias records").
pub const ALIAS_TTL: u32 = 60;

/// Maximum number of records in one request. Route 53 accepts 1,000 records and 32,000 characters.
pub const MOST_RECORDS: usize = 200;

/// Maximum number of record sets in one answer.
const PAGE: i32 = 300;

/// What requests for record sets do, for messages.
const LISTING: &str = "list record sets";

type Result<T> = std::result::Result<T, Route53Error>;
type CustomizableChange = CustomizableOperation<
    ChangeResourceRecordSetsOutput,
    ChangeResourceRecordSetsError,
    ChangeResourceRecordSetsFluentBuilder,
>;

/// The Route 53 API of an AWS account.
#[derive(Clone)]
pub struct Route53 {
    client: Client,
}

/// A hosted zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostedZone {
    /// Id of the zone.
    pub id: String,
    /// Name of the zone, in the format of [`RecordSet::name`].
    pub name: String,
    /// Whether the zone is private, so that only its networks (VPCs) can resolve its names.
    pub private: bool,
}

/// Formats the id and the kind of the zone: `Z123 (private)`.
impl fmt::Display for HostedZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.id, if self.private { "private" } else { "public" })
    }
}

impl From<types::HostedZone> for HostedZone {
    fn from(zone: types::HostedZone) -> Self {
        Self {
            id: short(&zone.id),
            name: canonical(&zone.name),
            private: zone.config.is_some_and(|config| config.private_zone),
        }
    }
}

/// Returns an id without its prefix: `Z123` for `/hostedzone/Z123`.
fn short(id: &str) -> String {
    id.rsplit('/').next().unwrap_or(id).to_string()
}

impl Route53 {
    /// Creates a client with the configuration and the credentials of this host. Sends no request to Route 53.
    pub async fn new() -> Result<Self> {
        let config = configuration().await.map_err(|reason| Route53Error::without(&reason))?;
        Ok(Self::of(&config))
    }

    fn of(config: &SdkConfig) -> Self {
        Self { client: Client::from_conf(Builder::from(config).interceptor(BodyLimit).build()) }
    }

    /// Returns the hosted zones with this name.
    pub async fn zones(&self, name: &str) -> Result<Vec<HostedZone>> {
        in_time("list hosted zones", self.zones_named(name)).await
    }

    async fn zones_named(&self, name: &str) -> Result<Vec<HostedZone>> {
        let (mut found, mut from): (Vec<HostedZone>, _) = (Vec::new(), None);
        loop {
            let asked =
                self.client.list_hosted_zones_by_name().dns_name(name).set_hosted_zone_id(from.take());
            let page = asked.send().await.map_err(|error| Route53Error::of("list hosted zones", &error))?;
            let zones = page.hosted_zones.into_iter().map(HostedZone::from);
            let before = found.len();
            let count = zones.len();
            found.extend(zones.filter(|zone| zone.name == name));
            // The answer is sorted by name.
            let is_past = found.len().saturating_sub(before) < count;
            from = page.next_hosted_zone_id;
            if is_past || !page.is_truncated || from.is_none() {
                return Ok(found);
            }
        }
    }

    /// Returns the hosted zone with this id.
    pub async fn zone(&self, id: &str) -> Result<HostedZone> {
        let answer = self.client.get_hosted_zone().id(id).send().await;
        let zone = answer.map_err(|error| Route53Error::of("read the hosted zone", &error))?.hosted_zone;
        zone.map(HostedZone::from).ok_or_else(|| Route53Error::garbled("the answer has no hosted zone"))
    }

    /// Returns the record sets of a hosted zone.
    pub async fn list(&self, zone: &str) -> Result<Vec<Listed>> {
        in_time(LISTING, self.list_from(zone, None)).await
    }

    /// Returns the record sets of one name.
    pub async fn sets_of(&self, zone: &str, name: &str) -> Result<Vec<RecordSet>> {
        let listed = in_time(LISTING, self.list_from(zone, Some(name))).await?;
        Ok(listed.into_iter().map(|listed| listed.set).collect())
    }

    /// Returns the record sets of one name, or of all names.
    async fn list_from(&self, zone: &str, only: Option<&str>) -> Result<Vec<Listed>> {
        let (mut name, mut kind, mut id) = (only.map(str::to_string), None, None);
        let (mut found, mut space) = (Vec::new(), Space::new());
        loop {
            let asked = self.client.list_resource_record_sets().hosted_zone_id(zone).max_items(PAGE);
            let asked = asked.set_start_record_name(name.take()).set_start_record_type(kind.take());
            let answer = asked.set_start_record_identifier(id.take()).send().await;
            let page = answer.map_err(|error| Route53Error::of(LISTING, &error))?;
            for set in page.resource_record_sets {
                let listed = Listed::from(set);
                if only.is_some_and(|only| listed.set.name != only) {
                    return Ok(found);
                }
                space.take(&listed.set)?;
                found.push(listed);
            }
            (name, kind, id) = (page.next_record_name, page.next_record_type, page.next_record_identifier);
            if !page.is_truncated || name.is_none() {
                return Ok(found);
            }
        }
    }

    /// Replaces all of these record sets, or none of them. Returns the id of the change. Fails with [`Route53Error::is_conflict`]
    /// if a set in Route 53 differs from the present set in the change, including its TTL.
    ///
    /// Sends only one request. The caller retries, because it must check its fence before each request. Fails with
    /// [`Route53Error::Unsent`] if this process was suspended after the call.
    pub async fn replace(&self, zone: &str, changes: &[SetChange]) -> Result<String> {
        let open = || changes.iter().filter(|change| change.is_change());
        let deleted = open().filter_map(|change| change.from.as_ref());
        let created = open().filter_map(|change| change.to.as_ref());
        let deleted = deleted.map(|set| change(ChangeAction::Delete, set));
        let created = created.map(|set| change(ChangeAction::Create, set));
        let once = Config::builder().retry_config(RetryConfig::disabled());
        let asked = self.change(zone, deleted.chain(created).collect::<Result<_>>()?)?;
        Self::changed(asked.customize().config_override(once).interceptor(Freshness::from_now())).await
    }

    fn change(&self, zone: &str, changes: Vec<Change>) -> Result<ChangeResourceRecordSetsFluentBuilder> {
        let batch = ChangeBatch::builder().comment("netsurgeon").set_changes(Some(changes)).build();
        let batch = batch.map_err(|error| Route53Error::garbled(&error))?;
        Ok(self.client.change_resource_record_sets().hosted_zone_id(zone).change_batch(batch))
    }

    async fn changed(asked: CustomizableChange) -> Result<String> {
        let answer = asked.send().await.map_err(|error| Route53Error::of("change record sets", &error))?;
        let info = answer.change_info.ok_or_else(|| Route53Error::garbled("the answer has no change"))?;
        Ok(short(&info.id))
    }

    /// Checks whether the account is allowed to change the record sets of these names and types. The request deletes record sets
    /// with an identifier that does not exist, so it fails and changes nothing.
    pub async fn may_change(&self, zone: &str, sets: &[(&str, RecordKind)]) -> Result<()> {
        for part in sets.chunks(MOST_RECORDS) {
            let never = part.iter().map(|(name, kind)| change(ChangeAction::Delete, &never(name, *kind)));
            let asked = self.change(zone, never.collect::<Result<_>>()?)?;
            match Self::changed(asked.customize()).await {
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
                Ok(_) => return Err(Route53Error::garbled("it has deleted a set that does not exist")),
            }
        }
        Ok(())
    }

    /// Returns whether all authoritative servers have applied a change (INSYNC). Also returns true if Route 53 no longer has a
    /// record of the change.
    pub async fn is_in_sync(&self, change: &str) -> Result<bool> {
        let answer = self.client.get_change().id(change).send().await;
        match answer.map_err(|error| Route53Error::of("read the state of a change", &error)) {
            Ok(answer) => Ok(answer.change_info.is_some_and(|info| info.status == ChangeStatus::Insync)),
            Err(Route53Error::Refused { code, .. }) if code == "NoSuchChange" => Ok(true),
            Err(error) => Err(error),
        }
    }
}

fn change(action: ChangeAction, set: &RecordSet) -> Result<Change> {
    let change = Change::builder().action(action).resource_record_set(set::of(set)?).build();
    change.map_err(|error| Route53Error::garbled(&error))
}

/// Returns a record set that does not exist in any zone.
fn never(name: &str, kind: RecordKind) -> RecordSet {
    let data = match kind {
        RecordKind::A => "192.0.2.1",
        RecordKind::Aaaa => "2001:db8::1",
        RecordKind::Txt => "\"netsurgeon\"",
        _ => "netsurgeon.invalid",
    };
    let weight = Some(Weight { id: "netsurgeon-never".to_string(), weight: 0 });
    RecordSet { weight, ..RecordSet::new(name, kind, 0, vec![data.to_string()]) }
}
