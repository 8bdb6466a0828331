//! Reads from EC2: instances, security groups, network interfaces, routes and NAT gateways.
//!
//! The names of elements are those of the EC2 API Reference, version 2016-11-15.

use serde::Deserialize;

use super::xml_list::list;
use super::{Account, AwsError, Query, Region, Service};

/// Number of ids in one request. EC2 accepts 1,000 for most actions; a request with 100 stays small.
const AT_ONCE: usize = 100;
/// Number of results in a page.
const PAGE: &str = "500";

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Tag {
    /// Its key.
    pub key: String,
    /// Its value.
    #[serde(default)]
    pub value: String,
}

/// The security group of an instance or of a network interface.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupId {
    /// Its id.
    pub group_id: String,
}

/// The instance profile of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProfileArn {
    /// Its ARN.
    pub arn: String,
}

/// The options of an instance's metadata service.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataOptions {
    /// `required` if only version 2 of the service answers, else `optional`.
    #[serde(default)]
    pub http_tokens: String,
    /// Number of hops that an answer of version 2 can travel. A Pod without the host's network needs two.
    #[serde(default)]
    pub http_put_response_hop_limit: u32,
    /// `enabled` or `disabled`.
    #[serde(default)]
    pub http_endpoint: String,
}

/// Where a network interface is attached.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// Number of the interface; 0 for the first one.
    #[serde(default)]
    pub device_index: u32,
}

/// A network interface of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceInterface {
    /// Its id.
    pub network_interface_id: String,
    /// Where it is attached.
    pub attachment: Option<Attachment>,
    /// Its groups.
    #[serde(default, rename = "groupSet", deserialize_with = "list")]
    pub groups: Vec<GroupId>,
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// Its id.
    pub instance_id: String,
    /// The network (VPC); `None` for a terminated instance.
    pub vpc_id: Option<String>,
    /// The subnet of its first network interface.
    pub subnet_id: Option<String>,
    /// The instance profile.
    pub iam_instance_profile: Option<ProfileArn>,
    /// The network interfaces.
    #[serde(default, rename = "networkInterfaceSet", deserialize_with = "list")]
    pub interfaces: Vec<InstanceInterface>,
    /// The options of the metadata service.
    pub metadata_options: Option<MetadataOptions>,
    /// The tags.
    #[serde(default, rename = "tagSet", deserialize_with = "list")]
    pub tags: Vec<Tag>,
}

impl Instance {
    /// Returns the first network interface.
    pub fn first_interface(&self) -> Option<&InstanceInterface> {
        let is_first =
            |one: &&InstanceInterface| one.attachment.as_ref().is_some_and(|at| at.device_index == 0);
        self.interfaces.iter().find(is_first)
    }

    /// Returns the ids of the security groups of the first network interface.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.first_interface().into_iter().flat_map(|one| &one.groups).map(|group| group.group_id.as_str())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Instances {
    #[serde(default, deserialize_with = "list")]
    reservation_set: Vec<Reservation>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reservation {
    #[serde(default, deserialize_with = "list")]
    instances_set: Vec<Instance>,
}

/// A peer of a permission: a security group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerGroup {
    /// Id of the group.
    #[serde(default)]
    pub group_id: String,
}

/// A peer of a permission: a range of IPv4 addresses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerRange {
    /// The range.
    pub cidr_ip: String,
}

/// A peer of a permission: a range of IPv6 addresses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerRange6 {
    /// The range.
    pub cidr_ipv6: String,
}

/// A peer of a permission: a managed prefix list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerList {
    /// Id of the list.
    pub prefix_list_id: String,
}

/// A permission of a security group: protocol and ports, with all peers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Permission {
    /// The protocol: `tcp`, `udp`, `icmp`, `icmpv6`, a number, or `-1` for all.
    pub ip_protocol: String,
    /// First port, or the ICMP type.
    pub from_port: Option<i64>,
    /// Last port, or the ICMP code.
    pub to_port: Option<i64>,
    /// Peers by group.
    #[serde(default, rename = "groups", deserialize_with = "list")]
    pub groups: Vec<PeerGroup>,
    /// Peers by IPv4 range.
    #[serde(default, rename = "ipRanges", deserialize_with = "list")]
    pub ranges: Vec<PeerRange>,
    /// Peers by IPv6 range.
    #[serde(default, rename = "ipv6Ranges", deserialize_with = "list")]
    pub ranges6: Vec<PeerRange6>,
    /// Peers by prefix list.
    #[serde(default, rename = "prefixListIds", deserialize_with = "list")]
    pub lists: Vec<PeerList>,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroup {
    /// Its id.
    pub group_id: String,
    /// Its name.
    #[serde(default)]
    pub group_name: String,
    /// The network (VPC).
    #[serde(default)]
    pub vpc_id: String,
    /// The inbound permissions.
    #[serde(default, rename = "ipPermissions", deserialize_with = "list")]
    pub inbound: Vec<Permission>,
    /// The outbound permissions.
    #[serde(default, rename = "ipPermissionsEgress", deserialize_with = "list")]
    pub outbound: Vec<Permission>,
    /// The tags.
    #[serde(default, rename = "tagSet", deserialize_with = "list")]
    pub tags: Vec<Tag>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecurityGroups {
    #[serde(default, deserialize_with = "list")]
    security_group_info: Vec<SecurityGroup>,
    next_token: Option<String>,
}

/// A network interface: who uses a security group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInterface {
    /// Its id.
    pub network_interface_id: String,
    /// Its description, which names the AWS service that created it.
    #[serde(default)]
    pub description: String,
    /// Its groups.
    #[serde(default, rename = "groupSet", deserialize_with = "list")]
    pub groups: Vec<GroupId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NetworkInterfaces {
    #[serde(default, deserialize_with = "list")]
    network_interface_set: Vec<NetworkInterface>,
    next_token: Option<String>,
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subnet {
    /// Its range.
    pub cidr_block: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subnets {
    #[serde(default, deserialize_with = "list")]
    subnet_set: Vec<Subnet>,
}

/// A route of a route table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The destination.
    pub destination_cidr_block: Option<String>,
    /// The NAT gateway that is the target.
    pub nat_gateway_id: Option<String>,
    /// The gateway that is the target.
    pub gateway_id: Option<String>,
    /// The transit gateway that is the target.
    pub transit_gateway_id: Option<String>,
    /// The instance that is the target.
    pub instance_id: Option<String>,
    /// The network interface that is the target.
    pub network_interface_id: Option<String>,
}

/// A subnet to which a route table applies.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteAssociation {
    /// The subnet.
    pub subnet_id: Option<String>,
    /// Whether the table applies to all subnets of the network that have no table.
    #[serde(default)]
    pub main: bool,
}

/// A route table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteTable {
    /// Its network.
    pub vpc_id: String,
    /// Its routes.
    #[serde(default, rename = "routeSet", deserialize_with = "list")]
    pub routes: Vec<Route>,
    /// Its subnets.
    #[serde(default, rename = "associationSet", deserialize_with = "list")]
    pub associations: Vec<RouteAssociation>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RouteTables {
    #[serde(default, deserialize_with = "list")]
    route_table_set: Vec<RouteTable>,
    next_token: Option<String>,
}

/// An address of a NAT gateway.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NatAddress {
    /// The public address; `None` for a private NAT gateway.
    pub public_ip: Option<String>,
}

/// A NAT gateway.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NatGateway {
    /// Its id.
    pub nat_gateway_id: String,
    /// Its addresses.
    #[serde(default, rename = "natGatewayAddressSet", deserialize_with = "list")]
    pub addresses: Vec<NatAddress>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NatGateways {
    #[serde(default, deserialize_with = "list")]
    nat_gateway_set: Vec<NatGateway>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PrefixListEntry {
    cidr: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PrefixListEntries {
    #[serde(default, deserialize_with = "list")]
    entry_set: Vec<PrefixListEntry>,
    next_token: Option<String>,
}

fn next_page(token: Option<&String>) -> Option<(&'static str, String)> {
    Some(("NextToken", token?.clone()))
}

impl Account {
    /// Returns the instances with these ids, and ignores ids that do not exist.
    pub async fn instances(&self, region: &Region, ids: &[&str]) -> Result<Vec<Instance>, AwsError> {
        let mut found = Vec::new();
        for ids in ids.chunks(AT_ONCE) {
            // A filter, because the parameter `InstanceId` fails if one of the ids does not exist.
            let query =
                Query::new(Service::Ec2, "DescribeInstances").filtered("instance-id", ids.iter().copied());
            let answer: Instances = self.read(region, &query).await?;
            found.extend(answer.reservation_set.into_iter().flat_map(|one| one.instances_set));
        }
        Ok(found)
    }

    /// Returns the security groups of the region. The filters of the API do not cover all kinds of peers, so all groups are read.
    pub async fn security_groups(&self, region: &Region) -> Result<Vec<SecurityGroup>, AwsError> {
        let query = Query::new(Service::Ec2, "DescribeSecurityGroups").with("MaxResults", PAGE);
        let next = |page: &SecurityGroups| next_page(page.next_token.as_ref());
        let pages = self.pages(region, &query, next).await?;
        Ok(pages.into_iter().flat_map(|page| page.security_group_info).collect())
    }

    /// Returns the network interfaces with one of these security groups.
    pub async fn interfaces_of(
        &self,
        region: &Region,
        groups: &[&str],
    ) -> Result<Vec<NetworkInterface>, AwsError> {
        let mut found = Vec::new();
        for groups in groups.chunks(AT_ONCE) {
            let query = Query::new(Service::Ec2, "DescribeNetworkInterfaces");
            let query = query.filtered("group-id", groups.iter().copied());
            let next = |page: &NetworkInterfaces| next_page(page.next_token.as_ref());
            let pages = self.pages(region, &query, next).await?;
            found.extend(pages.into_iter().flat_map(|page| page.network_interface_set));
        }
        Ok(found)
    }

    /// Returns the subnets with these ids.
    pub async fn subnets(&self, region: &Region, ids: &[&str]) -> Result<Vec<Subnet>, AwsError> {
        let mut found = Vec::new();
        for ids in ids.chunks(AT_ONCE) {
            let query =
                Query::new(Service::Ec2, "DescribeSubnets").filtered("subnet-id", ids.iter().copied());
            found.extend(self.read::<Subnets>(region, &query).await?.subnet_set);
        }
        Ok(found)
    }

    /// Returns the route tables of networks.
    pub async fn route_tables(&self, region: &Region, vpcs: &[&str]) -> Result<Vec<RouteTable>, AwsError> {
        let query = Query::new(Service::Ec2, "DescribeRouteTables").filtered("vpc-id", vpcs.iter().copied());
        let next = |page: &RouteTables| next_page(page.next_token.as_ref());
        let pages = self.pages(region, &query, next).await?;
        Ok(pages.into_iter().flat_map(|page| page.route_table_set).collect())
    }

    /// Returns the NAT gateways with these ids.
    pub async fn nat_gateways(&self, region: &Region, ids: &[&str]) -> Result<Vec<NatGateway>, AwsError> {
        let mut found = Vec::new();
        for ids in ids.chunks(AT_ONCE) {
            let query = Query::new(Service::Ec2, "DescribeNatGateways");
            let query = query.filtered("nat-gateway-id", ids.iter().copied());
            found.extend(self.read::<NatGateways>(region, &query).await?.nat_gateway_set);
        }
        Ok(found)
    }

    /// Returns the ranges of a managed prefix list.
    pub async fn prefix_list(&self, region: &Region, id: &str) -> Result<Vec<String>, AwsError> {
        let query = Query::new(Service::Ec2, "GetManagedPrefixListEntries").with("PrefixListId", id);
        let next = |page: &PrefixListEntries| next_page(page.next_token.as_ref());
        let pages = self.pages(region, &query, next).await?;
        Ok(pages.into_iter().flat_map(|page| page.entry_set).map(|entry| entry.cidr).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_parsed() {
        let xml = "<DescribeInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId>\
            <reservationSet><item><reservationId>r-1</reservationId><groupSet/><instancesSet><item>\
            <instanceId>i-1</instanceId><instanceState><code>16</code><name>running</name></instanceState>\
            <networkInterfaceSet>\n  <item><networkInterfaceId>eni-1</networkInterfaceId>\
            <attachment><deviceIndex>0</deviceIndex></attachment>\
            <groupSet>\n<item><groupId>sg-1</groupId><groupName>nodes</groupName></item>\n</groupSet></item>\n</networkInterfaceSet>\
            <metadataOptions><httpTokens>required</httpTokens><httpPutResponseHopLimit>1</httpPutResponseHopLimit>\
            <httpEndpoint>enabled</httpEndpoint></metadataOptions><vpcId>vpc-1</vpcId></item></instancesSet></item>\
            </reservationSet></DescribeInstancesResponse>";
        let found: Instances = quick_xml::de::from_str(xml).unwrap();
        let instance = &found.reservation_set[0].instances_set[0];
        assert_eq!((instance.instance_id.as_str(), instance.vpc_id.as_deref()), ("i-1", Some("vpc-1")));
        assert!(instance.groups().eq(["sg-1"]));
        assert_eq!(instance.metadata_options.as_ref().unwrap().http_put_response_hop_limit, 1);
        assert!(instance.tags.is_empty() && instance.iam_instance_profile.is_none());
    }

    #[test]
    fn empty_lists_are_parsed() {
        let xml = "<R><securityGroupInfo><item><groupId>sg-1</groupId><ipPermissions><item><ipProtocol>-1</ipProtocol>\
                   <groups/><ipRanges><item><cidrIp>10.0.0.0/8</cidrIp></item></ipRanges></item></ipPermissions>\
                   <ipPermissionsEgress/></item></securityGroupInfo></R>";
        let found: SecurityGroups = quick_xml::de::from_str(xml).unwrap();
        let group = &found.security_group_info[0];
        assert_eq!(group.inbound[0].ranges, [PeerRange { cidr_ip: "10.0.0.0/8".into() }]);
        assert!(
            group.inbound[0].groups.is_empty() && group.outbound.is_empty() && found.next_token.is_none()
        );
        let none: SecurityGroups = quick_xml::de::from_str("<R><securityGroupInfo/></R>").unwrap();
        assert!(none.security_group_info.is_empty());
    }
}
