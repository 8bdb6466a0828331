//! What one of the two clusters has in AWS.

use std::collections::{BTreeMap, BTreeSet};

use super::cluster::ClusterView;
use super::node_group::AwsNode;
use crate::aws::ec2::{Instance, Tag};
use crate::aws::{Account, AwsError, Region};

/// Tag with the name of a cluster.
const CLUSTER: &str = "KubernetesCluster";
/// Start of the key of a tag that ends with the name of a cluster.
const CLUSTER_KEY: &str = "kubernetes.io/cluster/";

/// A cluster, and the instances of its nodes.
#[derive(Debug, Clone)]
pub struct Side {
    /// `source` or `mirror`.
    pub word: &'static str,
    /// The region of its instances.
    pub region: Region,
    /// What the cluster says.
    pub view: ClusterView,
    /// Its instances by id.
    pub instances: BTreeMap<String, Instance>,
}

impl Side {
    /// Reads the instances of a cluster; `None` if none of its nodes is an instance.
    pub async fn read(
        account: &Account,
        word: &'static str,
        view: ClusterView,
    ) -> Result<Option<Self>, AwsError> {
        let mut counts: BTreeMap<&Region, usize> = BTreeMap::new();
        for node in &view.nodes {
            let count = counts.entry(&node.region).or_default();
            *count = count.saturating_add(1);
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let Some(region) = most.map(|(region, _)| region.clone()) else { return Ok(None) };
        let ids: Vec<&str> = view.nodes.iter().map(|node| node.instance.as_str()).collect();
        let found = account.instances(&region, &ids).await?;
        let instances = found.into_iter().map(|instance| (instance.instance_id.clone(), instance)).collect();
        Ok(Some(Self { word, region, view, instances }))
    }

    /// Returns the nodes whose instance was not found.
    pub fn lost_nodes(&self) -> Vec<&AwsNode> {
        self.view.nodes.iter().filter(|node| !self.instances.contains_key(&node.instance)).collect()
    }

    /// Returns the instances of a group of nodes.
    pub fn group(&self, group: &str) -> Vec<&Instance> {
        let nodes = self.view.nodes.iter().filter(|node| node.group == group);
        nodes.filter_map(|node| self.instances.get(&node.instance)).collect()
    }

    /// Returns the names of the cluster in tags of its instances.
    pub fn cluster_names(&self) -> BTreeSet<&str> {
        self.instances.values().flat_map(|instance| cluster_names(&instance.tags)).collect()
    }

    /// Returns the networks of its instances.
    pub fn vpcs(&self) -> BTreeSet<&str> {
        self.instances.values().filter_map(|instance| instance.vpc_id.as_deref()).collect()
    }

    /// Returns the subnets of its instances.
    pub fn subnets(&self) -> BTreeSet<&str> {
        self.instances.values().filter_map(|instance| instance.subnet_id.as_deref()).collect()
    }
}

/// Returns the names of the clusters that own something, from its tags. A tag with the value `shared` names no owner.
pub fn cluster_names(tags: &[Tag]) -> impl Iterator<Item = &str> {
    tags.iter().filter_map(|tag| match tag.key.strip_prefix(CLUSTER_KEY) {
        Some(name) => (tag.value == "owned").then_some(name),
        None => (tag.key == CLUSTER).then_some(tag.value.as_str()),
    })
}
