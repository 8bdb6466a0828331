//! Reads both clusters and the AWS account, and compares them.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use ipnetwork::IpNetwork;

use super::change::{Area, Change, Verdict};
use super::cluster::ClusterView;
use super::names::Names;
use super::node_group::{GroupPair, pairs};
use super::node_role::{self, PutPolicies, RoleView};
use super::pod_role::{PodRole, PodRoleComparison, PodRoles, role_names, roles_between};
use super::public_address::{self, Exit, addresses, exits};
use super::security_group::{Groups, Places, PrefixLists};
use super::side::Side;
use super::{ParityError, metadata_service};
use crate::aws::ec2::Instance;
use crate::aws::iam::{Role, name_of};
use crate::aws::{Account, AwsError};
use crate::words::{counted, first_few};

/// Number of requests at once.
const AT_ONCE: usize = 8;

/// What the user says about the two clusters.
#[derive(Debug, Clone, Default)]
pub struct ParityOptions {
    /// Groups of nodes of the source, each with its counterpart in the mirror.
    pub pairs: Vec<(String, String)>,
    /// Texts of the source in names and policies, each with that of the mirror.
    pub names: Vec<(String, String)>,
}

/// The result of the comparison.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Number of the AWS account.
    pub account: Option<String>,
    /// Number of instances of the source and of the mirror.
    pub instances: (usize, usize),
    /// The groups of nodes that were compared.
    pub pairs: Vec<GroupPair>,
    /// Texts of the source that became those of the mirror before the comparison: names of clusters, roles, and what the user gave.
    pub names: Vec<(String, String)>,
    /// The changes to make, and what was not checked.
    pub changes: Vec<Change>,
}

impl Comparison {
    /// Returns the number of changes with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.changes.iter().filter(|change| change.verdict == verdict).count()
    }

    /// Compares what the nodes and the Pods of two clusters can do in the account. Only reads.
    pub async fn read(
        account: &Account,
        (source, mirror): (ClusterView, ClusterView),
        options: &ParityOptions,
    ) -> Result<Self, ParityError> {
        let source =
            Side::read(account, "source", source).await?.ok_or(ParityError::NoInstances("source"))?;
        let mirror =
            Side::read(account, "mirror", mirror).await?.ok_or(ParityError::NoInstances("mirror"))?;
        for side in [&source, &mirror] {
            if side.instances.is_empty() {
                return Err(ParityError::OtherAccount { word: side.word, region: side.region.to_string() });
            }
        }
        let mut names = Names::default();
        options.names.iter().for_each(|(old, new)| names.add(old, new));
        let (of_source, of_mirror) =
            (Vec::from_iter(source.cluster_names()), Vec::from_iter(mirror.cluster_names()));
        if let ([old], [new]) = (of_source.as_slice(), of_mirror.as_slice()) {
            names.add(old, new);
        }
        let id = account.id(&mirror.region).await;
        let found = pairs((&source.view.nodes, &mirror.view.nodes), &names, &options.pairs);
        let (pairs, lonely) = found.map_err(ParityError::UnknownGroup)?;
        let mut run =
            Run { account, source: &source, mirror: &mirror, pairs: &pairs, names, changes: lonely };
        run.nodes();
        run.cluster_names((&of_source, &of_mirror));
        run.changes.extend(metadata_service::compare((&source, &mirror), &pairs));
        run.security_groups().await?;
        run.roles().await?;
        let (mut changes, names) = (run.changes, run.names);
        changes.sort_by_key(|change| change.area);
        let instances = (source.instances.len(), mirror.instances.len());
        Ok(Self { account: id.ok(), instances, pairs, names: names.pairs(), changes })
    }
}

/// A comparison that is under way.
struct Run<'r> {
    account: &'r Account,
    source: &'r Side,
    mirror: &'r Side,
    pairs: &'r [GroupPair],
    names: Names,
    changes: Vec<Change>,
}

/// Returns an error of a request as the reason why something was not checked. An error that concerns all requests ends the command.
fn tolerable<T>(result: Result<T, AwsError>) -> Result<Result<T, AwsError>, ParityError> {
    match result {
        Err(error) if error.is_of_credentials() => Err(error.into()),
        other => Ok(other),
    }
}

impl Run<'_> {
    fn not_read(&mut self, area: Area, subject: &str, what: &str, error: &AwsError) {
        self.changes.push(Change::unread(area, subject.to_string(), what, error));
    }

    /// Names the nodes that are not compared.
    fn nodes(&mut self) {
        for side in [self.source, self.mirror] {
            let lost = side.lost_nodes().into_iter().map(|node| &node.name);
            let names: Vec<String> =
                lost.chain(&side.view.other_nodes).map(|name| format!("`{name}`")).collect();
            if !names.is_empty() {
                self.changes.push(Change::not_checked(
                    Area::Nodes,
                    format!("nodes of the {}: {}", side.word, first_few(&names)),
                    "they were not compared".to_string(),
                    format!("they have no instance in {} in this account", side.region),
                ));
            }
        }
    }

    /// Says if the names of the clusters are not known.
    fn cluster_names(&mut self, (source, mirror): (&[&str], &[&str])) {
        for (word, names) in [("source", source), ("mirror", mirror)] {
            if names.len() > 1 {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                self.changes.push(Change::not_checked(
                    Area::Nodes,
                    format!("name of the {word} in tags of instances"),
                    "it was not replaced in policies and in names of security groups".to_string(),
                    format!("there are several, {}: `--rename SOURCE=MIRROR`", first_few(&names)),
                ));
            }
        }
    }

    /// Says that connections between two networks were not compared.
    fn networks(&mut self) {
        let (source, mirror) = (self.source.vpcs(), self.mirror.vpcs());
        if source != mirror {
            let names = |ids: BTreeSet<&str>| Vec::from_iter(ids).join(", ");
            self.changes.push(Change::not_checked(
                Area::SecurityGroup,
                format!("networks {} and {}", names(source), names(mirror)),
                "peerings, routes, VPC endpoints and private DNS zones of the mirror's network were not compared".to_string(),
                "the clusters are in different networks".to_string(),
            ));
        }
    }

    async fn security_groups(&mut self) -> Result<(), ParityError> {
        self.networks();
        let (source, mirror) = (self.source, self.mirror);
        let places = self.places().await?;
        if source.region != mirror.region {
            self.changes.push(Change::not_checked(
                Area::SecurityGroup,
                "security groups".to_string(),
                "they were not compared".to_string(),
                format!("the source is in {}, the mirror in {}", source.region, mirror.region),
            ));
            return Ok(());
        }
        let all = match tolerable(self.account.security_groups(&mirror.region).await)? {
            Ok(all) => all,
            Err(error) => {
                self.not_read(Area::SecurityGroup, "security groups", "they were not compared", &error);
                return Ok(());
            }
        };
        let (groups, changes) = Groups::new((source, mirror), &all, self.pairs, &self.names);
        self.changes.extend(changes);
        let own: BTreeSet<String> = groups.pairs().map(|(_, own)| own.to_string()).collect();
        for (old, new) in groups.pairs() {
            self.names.add(old, new);
        }
        let lists = self.prefix_lists(groups.prefix_lists()).await?;
        let mut found = groups.rules_by_group();
        if let Some((of_source, of_mirror)) = &places {
            found.extend(groups.rules_by_address((of_source, of_mirror), &lists));
        }
        let others = found.iter().map(|(group, _)| group.as_str());
        let others: BTreeSet<&str> = others.filter(|id| !own.contains(*id)).collect();
        let users = self.users(Vec::from_iter(others)).await?;
        self.changes.extend(found.into_iter().map(|(group, mut change)| {
            if let Some(users) = users.get(&group) {
                change.reason = format!("{}; used by {}", change.reason, first_few(users));
            }
            change
        }));
        Ok(())
    }

    /// Returns the network interfaces with each of these security groups, by their descriptions.
    async fn users(&self, ids: Vec<&str>) -> Result<BTreeMap<String, Vec<String>>, ParityError> {
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        // Without this right, a change only lacks the names of its users.
        let interfaces =
            tolerable(self.account.interfaces_of(&self.mirror.region, &ids).await)?.unwrap_or_default();
        let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for interface in interfaces.iter().filter(|interface| !interface.description.is_empty()) {
            let words = format!("{} ({})", interface.network_interface_id, interface.description);
            for group in &interface.groups {
                users.entry(group.group_id.clone()).or_default().push(words.clone());
            }
        }
        Ok(users)
    }

    async fn prefix_lists(&self, ids: BTreeSet<String>) -> Result<PrefixLists, ParityError> {
        let mut lists = PrefixLists::new();
        for id in ids {
            let found = tolerable(self.account.prefix_list(&self.mirror.region, &id).await)?;
            let ranges = found.map(|list| list.iter().filter_map(|text| text.parse().ok()).collect());
            lists.insert(id, ranges);
        }
        Ok(lists)
    }

    /// Compares the public addresses. Returns the addresses of both clusters; `None` if the subnets could not be read.
    async fn places(&mut self) -> Result<Option<(Places, Places)>, ParityError> {
        let (source, mirror) = (self.source, self.mirror);
        let subnets = (self.subnets(source).await?, self.subnets(mirror).await?);
        let (old_exits, new_exits) = (self.exits(source).await?, self.exits(mirror).await?);
        let mut gateways = Vec::new();
        let mut are_known = true;
        for (side, exits) in [(source, &old_exits), (mirror, &new_exits)] {
            let ids: Vec<&str> = exits.iter().flatten().filter_map(Exit::gateway).collect();
            match tolerable(self.account.nat_gateways(&side.region, &ids).await)? {
                Ok(found) => gateways.extend(found),
                Err(error) => {
                    let subject = format!("NAT gateways of the {}", side.word);
                    are_known = false;
                    self.not_read(
                        Area::PublicAddress,
                        &subject,
                        "public addresses were not compared, nor the rules for them in security groups",
                        &error,
                    );
                }
            }
        }
        let public = |exits: &Option<BTreeSet<Exit>>| {
            let found = exits.as_ref().map(|exits| addresses(exits, &gateways)).unwrap_or_default();
            found.iter().filter_map(|address| address.parse().ok()).collect()
        };
        if let (true, Some(old), Some(new)) = (are_known, &old_exits, &new_exits) {
            let changes = public_address::compare((source, mirror), (old, new), &gateways);
            self.changes.extend(changes);
        }
        let (Some(of_source), Some(of_mirror)) = subnets else { return Ok(None) };
        Ok(Some((
            Places { subnets: of_source, public: public(&old_exits) },
            Places { subnets: of_mirror, public: public(&new_exits) },
        )))
    }

    async fn subnets(&mut self, side: &Side) -> Result<Option<Vec<IpNetwork>>, ParityError> {
        let ids = Vec::from_iter(side.subnets());
        match tolerable(self.account.subnets(&side.region, &ids).await)? {
            Ok(found) => {
                let ranges: Vec<IpNetwork> =
                    found.iter().filter_map(|subnet| subnet.cidr_block.parse().ok()).collect();
                if ranges.len() < ids.len() {
                    self.changes.push(Change::not_checked(
                        Area::SecurityGroup,
                        format!("subnets of the {}", side.word),
                        "whether security groups let in all of their addresses was not compared".to_string(),
                        format!("AWS returned {} of {}", ranges.len(), ids.len()),
                    ));
                }
                Ok(Some(ranges))
            }
            Err(error) => {
                let subject = format!("subnets of the {}", side.word);
                let what = "whether security groups let in their addresses was not compared";
                self.not_read(Area::SecurityGroup, &subject, what, &error);
                Ok(None)
            }
        }
    }

    async fn exits(&mut self, side: &Side) -> Result<Option<BTreeSet<Exit>>, ParityError> {
        let vpcs = Vec::from_iter(side.vpcs());
        match tolerable(self.account.route_tables(&side.region, &vpcs).await)? {
            Ok(tables) => Ok(Some(exits(side, &tables))),
            Err(error) => {
                let subject = format!("routes of the {}", side.word);
                self.not_read(Area::PublicAddress, &subject, "public addresses were not compared", &error);
                Ok(None)
            }
        }
    }

    /// Compares the roles of nodes, then those of Pods.
    async fn roles(&mut self) -> Result<(), ParityError> {
        let mut compared: BTreeMap<(String, String), (Role, Role)> = BTreeMap::new();
        let mut known: BTreeMap<String, Result<Option<Role>, AwsError>> = BTreeMap::new();
        let mut is_complete = true;
        for pair in self.pairs {
            let found = [
                self.role_of_group(self.source, &pair.source, &mut known).await?,
                self.role_of_group(self.mirror, &pair.mirror, &mut known).await?,
            ];
            if let [Some(old), Some(new)] = found {
                compared.entry((old.arn.clone(), new.arn.clone())).or_insert((old, new));
            } else {
                is_complete = false;
            }
        }
        for (old, new) in compared.values() {
            self.names.add(&old.arn, &new.arn);
            self.names.add(&old.role_name, &new.role_name);
        }
        let mut put = PutPolicies::new();
        for (old, new) in compared.values().filter(|(old, new)| old.arn != new.arn) {
            self.policies(old, new, &mut put).await?;
        }
        let nodes: Vec<(String, String)> = compared.into_keys().collect();
        self.pod_roles(&nodes, is_complete).await
    }

    /// Returns the role of a group of nodes. Of several roles, only the first one is compared.
    async fn role_of_group(
        &mut self,
        side: &Side,
        group: &str,
        known: &mut BTreeMap<String, Result<Option<Role>, AwsError>>,
    ) -> Result<Option<Role>, ParityError> {
        let instances = side.group(group);
        let of_instance =
            |instance: &&Instance| Some(name_of(&instance.iam_instance_profile.as_ref()?.arn).to_string());
        let profiles: BTreeSet<String> = instances.iter().filter_map(of_instance).collect();
        let without = instances.iter().filter(|instance| of_instance(instance).is_none()).count();
        let subject = format!("group `{group}` of the {}", side.word);
        let mut not_checked = |what: &str, reason: String| {
            self.changes.push(Change::not_checked(Area::NodeRole, subject.clone(), what.to_string(), reason));
        };
        if profiles.len() > 1 {
            let names: Vec<String> = profiles.iter().map(|name| format!("`{name}`")).collect();
            let reason = format!("its instances have several: {}", first_few(&names));
            not_checked("only the first of its instance profiles was compared", reason);
        }
        if without > 0 {
            let instances = counted(without, "instance has", "instances have");
            not_checked("not all of its instances were compared", format!("{instances} no instance profile"));
        }
        let Some(name) = profiles.into_iter().next() else { return Ok(None) };
        if !known.contains_key(&name) {
            let found = tolerable(self.account.role_of_profile(&side.region, &name).await)?;
            known.insert(name.clone(), found);
        }
        match known.get(&name) {
            Some(Ok(Some(role))) => Ok(Some(role.clone())),
            Some(Err(error)) => {
                not_checked("its role was not compared", error.to_string());
                Ok(None)
            }
            _ => {
                not_checked("its role was not compared", format!("instance profile `{name}` has no role"));
                Ok(None)
            }
        }
    }

    /// Compares the policies of two roles.
    async fn policies(&mut self, old: &Role, new: &Role, put: &mut PutPolicies) -> Result<(), ParityError> {
        let region = &self.mirror.region;
        // The role of an instance profile lacks the boundary and the duration of sessions.
        let mut views = Vec::new();
        for role in [old, new] {
            let found = match tolerable(self.account.role(region, &role.role_name).await)? {
                Ok(role) => tolerable(RoleView::read(self.account, region, role).await)?,
                Err(error) => Err(error),
            };
            match found {
                Ok(view) => views.push(view),
                Err(error) => {
                    let subject = format!("role `{}`", role.role_name);
                    self.not_read(Area::NodeRole, &subject, "its rights were not compared", &error);
                }
            }
        }
        if let [old, new] = views.as_slice() {
            self.changes.extend(node_role::compare(old, new, &self.names, put));
        }
        Ok(())
    }

    async fn pod_roles(&mut self, nodes: &[(String, String)], is_complete: bool) -> Result<(), ParityError> {
        let (source, mirror) = (&self.source.view, &self.mirror.view);
        let mut roles = self.read_roles(role_names(source, mirror)).await?;
        let mut between = roles_between(source, &roles, nodes);
        between.retain(|role| !roles.contains_key(role));
        roles.extend(self.read_roles(between).await?);
        let provider = match &mirror.issuer {
            Ok(issuer) if !source.accounts.is_empty() => {
                tolerable(self.account.oidc_provider(&self.mirror.region, issuer).await)?
            }
            _ => Ok(None),
        };
        let mut comparison = PodRoleComparison::new(source, mirror, &roles);
        comparison.accounts(&provider);
        comparison.annotated(nodes, is_complete);
        for change in comparison.changes() {
            if !self.changes.contains(&change) {
                self.changes.push(change);
            }
        }
        Ok(())
    }

    async fn read_roles(&self, names: BTreeSet<String>) -> Result<PodRoles, ParityError> {
        let read = |name: String| async move {
            let found = self.account.role(&self.mirror.region, &name).await;
            let role = found.and_then(|role| Ok(PodRole { trust: role.trust()?, arn: role.arn }));
            Ok::<_, ParityError>((name, tolerable(role)?))
        };
        let found: Vec<_> = stream::iter(names).map(read).buffered(AT_ONCE).collect().await;
        found.into_iter().collect()
    }
}
