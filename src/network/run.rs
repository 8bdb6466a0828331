//! The start of a test: prepares the cluster, and starts the agents.

use std::collections::BTreeMap;
use std::pin::pin;

use k8s_openapi::api::core::v1::Node;

use super::attendance::{Attendance, has_started, not_started, started_key};
use super::cell::Cells;
use super::course::{Course, Progress};
use super::deployment::{Deployment, DeploymentError, Started};
use super::family::record_families;
use super::fleet::Fleet;
use super::member::{Member, Role};
use super::node_object::observed;
use super::options::{Test, runs_agents};
use super::result::Result;
use super::round::{ALL_PAIRS, Schedule};
use super::targets;
use crate::kube_api::Cluster;
use crate::kube_api::accessors::name;

impl Test {
    /// Runs the test until it has ended or `stop` is ready. Returns the result of the complete rounds; `None` if there is none. The
    /// caller removes the objects afterwards, also after an error ([`Deployment::clean`]).
    pub async fn run(
        &self,
        cluster: &Cluster,
        deployment: &Deployment,
        stop: impl Future<Output = ()>,
        say: Progress<'_>,
    ) -> std::result::Result<Option<Result>, DeploymentError> {
        let mut stop = pin!(stop);
        let nodes = tokio::select! {
            prepared = self.prepared(cluster, deployment, say) => prepared?,
            () = &mut stop => return Ok(None),
        };
        let work = async {
            let course = tokio::select! {
                course = self.course(cluster, deployment, &nodes, say) => course?,
                () = &mut stop => return Ok(None),
            };
            course.rounds(stop.as_mut(), say).await
        };
        tokio::select! {
            result = work => result,
            lost = deployment.keep_lease() => Err(lost),
        }
    }

    /// Prepares the cluster; returns the nodes to test.
    async fn prepared(
        &self,
        cluster: &Cluster,
        deployment: &Deployment,
        say: Progress<'_>,
    ) -> std::result::Result<Vec<Node>, DeploymentError> {
        let nodes = self.chosen(cluster).await?;
        let first = nodes.first().ok_or(DeploymentError::NoNodes)?;
        say("checking that the cluster accepts the Pods of the test");
        deployment.prepare(name(first), &Role::ALL).await?;
        Ok(nodes)
    }

    /// Starts the agents, and connects to them.
    async fn course<'t>(
        &'t self,
        cluster: &Cluster,
        deployment: &'t Deployment,
        nodes: &[Node],
        say: Progress<'_>,
    ) -> std::result::Result<Course<'t>, DeploymentError> {
        let names: Vec<String> = nodes.iter().map(|node| name(node).to_string()).collect();
        let settings = deployment.settings();
        let services = deployment.create_services().await?;
        let mut cells = Cells::new(names.len() > ALL_PAIRS);
        let mut members: Vec<Member> = nodes.iter().map(Member::of).collect();
        for (node, member) in nodes.iter().zip(&members) {
            observed(node, &member.node, &mut cells);
        }
        let mut attendance = Attendance::new(self);
        for role in self.roles() {
            let progress =
                |ready: usize, all: usize| say(&format!("agents `{}`: {ready} of {all}", role.name()));
            let started = deployment.start(&names, role, self.patience, &progress).await?;
            record_start(&started, role, &members, &mut cells);
            let known = started.agents.keys().chain(&started.declined);
            known.for_each(|index| attendance.add((*index, role)));
            let late = started.faults.keys().filter(|index| !started.declined.contains(index));
            late.for_each(|index| attendance.add_late((*index, role)));
            for (index, agent) in started.agents {
                if let Some(member) = members.get_mut(index) {
                    member.agents.insert(role, agent);
                }
            }
        }
        record_families(&members, |_| true, &mut cells);
        let mut fleet = Fleet::new(members, BTreeMap::new());
        fleet.connect(deployment).await;
        let mut targets = targets::targets(cluster, &services).await?;
        let domains = fleet.facts(Role::Pod).await;
        let domain = domains.values().find_map(|facts| facts.cluster_domain().map(str::to_string));
        targets.names =
            targets::names(&targets, settings, domain.as_deref().unwrap_or("cluster.local"), &self.names);
        targets.name_servers.clone_from(&self.name_servers);
        let schedule = Schedule::new(names.len(), self.peers, seed(&settings.run));
        let ports = (settings.port, settings.host_port);
        let deployment = Some(deployment);
        Ok(Course { test: self, deployment, fleet, attendance, cells, targets, schedule, resized: 0, ports })
    }

    /// Returns the nodes to test.
    async fn chosen(&self, cluster: &Cluster) -> std::result::Result<Vec<Node>, DeploymentError> {
        let mut nodes: Vec<Node> = cluster.objects(None, None).await?;
        nodes.retain(runs_agents);
        if let Some(unknown) = self.nodes.iter().find(|wanted| nodes.iter().all(|node| name(node) != *wanted))
        {
            return Err(DeploymentError::UnknownNode(unknown.clone()));
        }
        nodes.retain(|node| self.includes(node));
        nodes.sort_by(|one, other| name(one).cmp(name(other)));
        Ok(nodes)
    }
}

/// Returns a number for the order of the schedule.
fn seed(run: &str) -> u64 {
    run.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()))
}

/// Records how the Pods of a role started.
fn record_start(started: &Started, role: Role, members: &[Member], cells: &mut Cells) {
    for (index, member) in members.iter().enumerate() {
        let key = started_key(&member.node, role);
        match (started.times.get(&index), started.faults.get(&index).cloned().unwrap_or_default()) {
            (Some(time), _) => cells.record(key, has_started(role, *time)),
            (None, reason) if started.declined.contains(&index) => cells.record_untested(key, &reason),
            (None, reason) => cells.record(key, not_started(role, reason)),
        }
    }
}
