//! Compares the public addresses of the two clusters' connections: partners outside of the network can allow only those of the source.

use std::collections::BTreeSet;

use super::change::{Area, Change, Command};
use super::side::Side;
use crate::aws::ec2::{NatGateway, Route, RouteTable};
use crate::words::first_few;

/// How connections leave a subnet to the Internet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Through a NAT gateway.
    Nat(String),
    /// With the public address of the instance itself.
    Own,
    /// Through something else, such as a transit gateway.
    Other(String),
    /// Not at all.
    None,
}

impl Exit {
    /// Returns the id of the NAT gateway.
    pub fn gateway(&self) -> Option<&str> {
        if let Self::Nat(id) = self { Some(id) } else { None }
    }
}

/// Returns the exits of subnets in their networks.
pub fn exits(side: &Side, tables: &[RouteTable]) -> BTreeSet<Exit> {
    let places: BTreeSet<(&str, &str)> = side
        .instances
        .values()
        .filter_map(|instance| Some((instance.subnet_id.as_deref()?, instance.vpc_id.as_deref()?)))
        .collect();
    places.into_iter().map(|(subnet, vpc)| exit(subnet, vpc, tables)).collect()
}

fn exit(subnet: &str, vpc: &str, tables: &[RouteTable]) -> Exit {
    let own = tables.iter().find(|table| {
        table.associations.iter().any(|association| association.subnet_id.as_deref() == Some(subnet))
    });
    let main = || {
        tables.iter().find(|table| {
            table.vpc_id == vpc && table.associations.iter().any(|association| association.main)
        })
    };
    let routes = own.or_else(main).map(|table| table.routes.as_slice()).unwrap_or_default();
    let default = routes.iter().find(|route| route.destination_cidr_block.as_deref() == Some("0.0.0.0/0"));
    default.map_or(Exit::None, target)
}

fn target(route: &Route) -> Exit {
    if let Some(id) = &route.nat_gateway_id {
        return Exit::Nat(id.clone());
    }
    match &route.gateway_id {
        Some(id) if id.starts_with("igw-") => return Exit::Own,
        _ => {}
    }
    let others =
        [&route.transit_gateway_id, &route.instance_id, &route.network_interface_id, &route.gateway_id];
    let other = others.into_iter().flatten().next().cloned();
    Exit::Other(other.unwrap_or_else(|| "an unknown target".to_string()))
}

/// Returns the public addresses of exits through NAT gateways.
pub fn addresses(exits: &BTreeSet<Exit>, gateways: &[NatGateway]) -> BTreeSet<String> {
    let is_exit = |gateway: &&NatGateway| exits.contains(&Exit::Nat(gateway.nat_gateway_id.clone()));
    let found = gateways.iter().filter(is_exit).flat_map(|gateway| &gateway.addresses);
    found.filter_map(|address| address.public_ip.clone()).collect()
}

/// Compares the exits.
pub fn compare(
    (source, mirror): (&Side, &Side),
    (of_source, of_mirror): (&BTreeSet<Exit>, &BTreeSet<Exit>),
    gateways: &[NatGateway],
) -> Vec<Change> {
    let sides = [(source, of_source), (mirror, of_mirror)];
    let mut found: Vec<Change> =
        sides.iter().filter_map(|(side, exits)| unknown(side, exits, gateways)).collect();
    let subject = || "connections of the mirror to the Internet".to_string();
    let describe = |action: &str| Command::new("ec2", action).in_region(&mirror.region);
    if of_mirror.contains(&Exit::None) && !of_source.contains(&Exit::None) {
        let reason = "its subnets have no route to 0.0.0.0/0, and those of the source have one".to_string();
        let change = Change::missing(
            Area::PublicAddress,
            subject(),
            "add a route, for example through a NAT gateway".to_string(),
            reason,
        );
        let filter = format!("Name=vpc-id,Values={}", Vec::from_iter(mirror.vpcs()).join(","));
        found.push(change.with_command(describe("describe-route-tables").with("--filters", &filter).text()));
    }
    let (old, new) = (addresses(of_source, gateways), addresses(of_mirror, gateways));
    let unknown_to_others: Vec<String> = new.difference(&old).cloned().collect();
    let own = of_mirror.contains(&Exit::Own) && !of_source.contains(&Exit::Own);
    if old.is_empty() || (unknown_to_others.is_empty() && !own) {
        return found;
    }
    let olds = first_few(&Vec::from_iter(old));
    let change = if own {
        "give the nodes of the mirror a NAT gateway, or let partners allow the public addresses of its instances"
            .to_string()
    } else {
        format!("let partners and firewalls outside allow {}", unknown_to_others.join(", "))
    };
    let reason = format!("those of the source come from {olds}, which others can have allowed");
    let ids = of_mirror.iter().filter_map(Exit::gateway);
    let command = describe("describe-nat-gateways").with_list("--nat-gateway-ids", ids);
    found.push(Change::missing(Area::PublicAddress, subject(), change, reason).with_command(command.text()));
    found
}

/// Returns that exits have addresses that are not known here.
fn unknown(side: &Side, exits: &BTreeSet<Exit>, gateways: &[NatGateway]) -> Option<Change> {
    let has_address = |id: &str| {
        let is_it = |gateway: &&NatGateway| gateway.nat_gateway_id == id;
        gateways
            .iter()
            .filter(is_it)
            .flat_map(|gateway| &gateway.addresses)
            .any(|one| one.public_ip.is_some())
    };
    let words = |exit: &Exit| match exit {
        Exit::Other(id) => Some(id.clone()),
        Exit::Nat(id) if !has_address(id) => Some(format!("{id} without a public address")),
        Exit::Own if side.word == "source" => Some("public addresses of its instances".to_string()),
        _ => None,
    };
    let others: Vec<String> = exits.iter().filter_map(words).collect();
    (!others.is_empty()).then(|| {
        Change::not_checked(
            Area::PublicAddress,
            format!("connections of the {} to the Internet", side.word),
            "not all of their public addresses were compared".to_string(),
            format!("they leave through {}", first_few(&others)),
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(vpc: &str, subnet: Option<&str>, route: &serde_json::Value) -> RouteTable {
        let route: Route = serde_json::from_value(route.clone()).unwrap();
        let association = crate::aws::ec2::RouteAssociation {
            subnet_id: subnet.map(str::to_string),
            main: subnet.is_none(),
        };
        RouteTable { vpc_id: vpc.into(), routes: vec![route], associations: vec![association] }
    }

    #[test]
    fn subnets_without_a_table_have_the_main_one() {
        let tables = [
            table("v1", None, &json!({ "destinationCidrBlock": "0.0.0.0/0", "gatewayId": "igw-1" })),
            table("v1", Some("s1"), &json!({ "destinationCidrBlock": "0.0.0.0/0", "natGatewayId": "nat-1" })),
            table("v2", None, &json!({ "destinationCidrBlock": "0.0.0.0/0", "transitGatewayId": "tgw-1" })),
            table("v3", None, &json!({ "destinationCidrBlock": "10.0.0.0/8", "gatewayId": "local" })),
        ];
        assert_eq!(exit("s1", "v1", &tables), Exit::Nat("nat-1".into()));
        assert_eq!(exit("s2", "v1", &tables), Exit::Own);
        assert_eq!(exit("s3", "v2", &tables), Exit::Other("tgw-1".into()));
        assert_eq!(exit("s4", "v3", &tables), Exit::None);
    }
}
