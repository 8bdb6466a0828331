//! Converts record sets from and to the types of the API.

use aws_sdk_route53::types::{AliasTarget, ResourceRecord, ResourceRecordSet, RrType};

use super::load_balancers::is_load_balancer_zone;
use super::{ALIAS_TTL, Route53Error};
use crate::nameserver::{Alias, RecordKind, RecordSet, Weight, canonical};

/// A record set of a hosted zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The set. Its data has the format of the API, in which texts have quotes.
    pub set: RecordSet,
    /// Why netsurgeon cannot change the set, for example because of its routing policy. In a message, this text follows the name
    /// of the set.
    pub routing: Option<String>,
}

impl From<ResourceRecordSet> for Listed {
    fn from(found: ResourceRecordSet) -> Self {
        let routing = routing(&found);
        let kind = kind_of(&found.r#type);
        let ttl = found.ttl.and_then(|ttl| u32::try_from(ttl).ok()).unwrap_or(ALIAS_TTL);
        let mut data: Vec<String> =
            found.resource_records.unwrap_or_default().into_iter().map(|record| record.value).collect();
        data.sort();
        let alias = found.alias_target.map(|target| {
            data = vec![canonical(&target.dns_name)];
            Alias { zone: target.hosted_zone_id, checks_health: target.evaluate_target_health }
        });
        let weight = found.weight.and_then(|weight| u8::try_from(weight).ok());
        let weight = weight.zip(found.set_identifier).map(|(weight, id)| Weight { id, weight });
        let name = canonical(&unescaped(&found.name));
        Self { set: RecordSet { weight, alias, ..RecordSet::new(name, kind, ttl, data) }, routing }
    }
}

/// Returns why netsurgeon cannot change a set.
fn routing(set: &ResourceRecordSet) -> Option<String> {
    let policies = [
        ("weighted", set.weight.is_some()),
        ("latency", set.region.is_some()),
        ("failover", set.failover.is_some()),
        ("geolocation", set.geo_location.is_some()),
        ("geoproximity", set.geo_proximity_location.is_some()),
        ("multivalue answer", set.multi_value_answer.is_some()),
        ("IP-based", set.cidr_routing_config.is_some()),
        ("traffic policy", set.traffic_policy_instance_id.is_some()),
    ];
    if let Some((policy, _)) = policies.iter().find(|(_, has)| *has) {
        return Some(format!("has {policy} routing"));
    }
    if set.health_check_id.is_some() {
        return Some("has a health check".to_string());
    }
    let target = set.alias_target.as_ref().filter(|target| !is_load_balancer_zone(&target.hosted_zone_id))?;
    Some(format!("is an alias of `{}`, which is not a load balancer", canonical(&target.dns_name)))
}

/// Converts a record set to the type of the API.
pub(super) fn of(set: &RecordSet) -> Result<ResourceRecordSet, Route53Error> {
    if !matches!(set.kind, RecordKind::A | RecordKind::Aaaa | RecordKind::Cname | RecordKind::Txt) {
        return Err(Route53Error::garbled(&format!(
            "netsurgeon does not change records of type {}",
            set.kind
        )));
    }
    let made = ResourceRecordSet::builder().name(format!("{}.", set.name)).r#type(type_of(set.kind));
    let made = match &set.weight {
        Some(Weight { id, weight }) => made.set_identifier(id).weight(i64::from(*weight)),
        None => made,
    };
    let made = if let Some(Alias { zone, checks_health }) = &set.alias {
        let target = AliasTarget::builder().hosted_zone_id(zone).evaluate_target_health(*checks_health);
        let target = target.dns_name(set.data.first().cloned().unwrap_or_default()).build();
        made.alias_target(target.map_err(|error| Route53Error::garbled(&error))?)
    } else {
        let record = |data: &String| ResourceRecord::builder().value(data).build();
        let records: Result<Vec<_>, _> = set.data.iter().map(record).collect();
        let records = records.map_err(|error| Route53Error::garbled(&error))?;
        made.ttl(set.ttl.into()).set_resource_records(Some(records))
    };
    made.build().map_err(|error| Route53Error::garbled(&error))
}

fn kind_of(kind: &RrType) -> RecordKind {
    // netsurgeon does not change records of other types, so it does not need the numbers of these types.
    kind.as_str().parse().unwrap_or(RecordKind::Other(0))
}

fn type_of(kind: RecordKind) -> RrType {
    RrType::from(kind.to_string().as_str())
}

/// Returns the name with a decoded wildcard. Route 53 returns the asterisk as `\052` (Route 53 Developer Guide, "DNS domain name
/// format"). Other codes are not decoded, because a decoded dot would change the name.
fn unescaped(name: &str) -> String {
    name.replace("\\052", "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &RecordSet) -> Listed {
        Listed::from(of(set).unwrap())
    }

    #[test]
    fn set_is_read_as_it_was_written() {
        let plain =
            RecordSet::new("*.example.com", RecordKind::A, 300, vec!["192.0.2.1".into(), "192.0.2.2".into()]);
        assert_eq!(read(&plain), Listed { set: plain.clone(), routing: None });
        let weight = Some(Weight { id: "netsurgeon-old".into(), weight: 0 });
        let weighted = RecordSet { weight, ..plain };
        let expected = Listed { set: weighted.clone(), routing: Some("has weighted routing".into()) };
        assert_eq!(read(&weighted), expected);
        let alias = Alias { zone: "Z32O12XQLNTSW2".into(), checks_health: true };
        let target = vec!["web.eu-west-1.elb.amazonaws.com".to_string()];
        let alias =
            RecordSet { alias: Some(alias), ..RecordSet::new("www", RecordKind::Aaaa, ALIAS_TTL, target) };
        assert_eq!(read(&alias), Listed { set: alias.clone(), routing: None });
        let other = Alias { zone: "Z2FDTNDATAQYW2".into(), checks_health: false };
        let other = read(&RecordSet { alias: Some(other), data: vec!["d1.cloudfront.net".into()], ..alias });
        assert_eq!(
            other.routing.as_deref(),
            Some("is an alias of `d1.cloudfront.net`, which is not a load balancer")
        );
    }

    #[test]
    fn escape_codes_of_names_are_decoded() {
        assert_eq!(unescaped("\\052.example.com."), "*.example.com.");
        assert_eq!(unescaped("a-\\052.example.com."), "a-*.example.com.");
        assert_eq!(unescaped("a\\056b.example.com"), "a\\056b.example.com");
    }
}
