//! The course of a test: asks the agents round by round.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::{Instant, sleep};

use super::attendance::Attendance;
use super::cell::{CellKey, Cells};
use super::counters;
use super::deployment::{Deployment, DeploymentError};
use super::fleet::{Fleet, Replies};
use super::isolation::foreign_policies;
use super::member::Role;
use super::options::Test;
use super::path::Path;
use super::policy::Policies;
use super::result::{PathResult, Result};
use super::round::{Probe, Round, Schedule, Targets, rounds_to_cover};
use super::targets::api_servers;
use crate::agent::{Ask, Facts, Seen};

/// The time in which every kube-proxy must know the Services of the test.
const SETTLEMENT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(300);

/// Reports what a test does.
pub type Progress<'p> = &'p (dyn Fn(&str) + Sync);

/// The state of a test whose agents have started.
pub(super) struct Course<'t> {
    pub(super) test: &'t Test,
    /// The objects of the test; `None` if the caller started the agents.
    pub(super) deployment: Option<&'t Deployment>,
    pub(super) fleet: Fleet,
    pub(super) attendance: Attendance<'t>,
    pub(super) cells: Cells,
    pub(super) targets: Targets,
    pub(super) schedule: Schedule,
    /// The round before which nodes joined last.
    pub(super) resized: u32,
    /// The port of all agents, and the host port of the peers.
    pub(super) ports: (u16, u16),
}

/// Whether a probe can fail only because the Services of the test are new.
fn is_of_new_services(probe: &Probe, seen: &Seen) -> bool {
    probe.key.path.needs_services() || matches!(seen, Seen::Addresses { .. })
}

impl Course<'_> {
    /// Runs the rounds until the test is over or `stop` is ready. Returns the result of the complete rounds; `None` if `stop` was
    /// ready before the end of the first round.
    pub(super) async fn rounds(
        mut self,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        say: Progress<'_>,
    ) -> std::result::Result<Option<Result>, DeploymentError> {
        let (started, at) = (Instant::now(), OffsetDateTime::now_utc());
        let before = tokio::select! {
            before = self.fleet.facts(Role::Host) => before,
            () = &mut stop => return Ok(None),
        };
        let mut round = 0_u32;
        let is_stopped = loop {
            let begun = Instant::now();
            tokio::select! {
                done = self.round(round, &before, say) => done?,
                () = &mut stop => break true,
            }
            round = round.saturating_add(1);
            let failed = self.cells.failed().count();
            say(&format!("round {round}: {} probes, {failed} paths failed", self.cells.probes()));
            let is_over = match self.test.duration {
                Some(duration) => started.elapsed() >= duration,
                None => round >= self.test.rounds,
            };
            if is_over || !self.test.keep_going && self.has_new_failure() {
                break false;
            }
            tokio::select! {
                () = sleep(self.test.interval.saturating_sub(begun.elapsed())) => {}
                () = &mut stop => break true,
            }
        };
        if round == 0 {
            return Ok(None);
        }
        let time = started.elapsed();
        let policies = match self.deployment {
            Some(deployment) if self.cells.failed().next().is_some() => {
                foreign_policies(deployment.cluster(), deployment.settings()).await
            }
            _ => Vec::new(),
        };
        Ok(Some(Result { policies, ..self.result(round, time, at, is_stopped) }))
    }

    /// Runs a round. Of a round that is dropped, only paths that were not tested are recorded, except in the first round.
    async fn round(
        &mut self,
        number: u32,
        before: &BTreeMap<usize, Facts>,
        say: Progress<'_>,
    ) -> std::result::Result<(), DeploymentError> {
        let has_changed = number > 0 && self.attend(true).await;
        if self.schedule.resize(self.fleet.members.len()) {
            self.resized = number;
        }
        let mut replies = self.replies(number).await;
        let has_failed = replies.0.iter().any(|(probe, seen)| self.fleet.has_failed(probe, seen));
        self.forget_former_api_servers(&mut replies).await;
        let changes = has_failed && self.attend(false).await;
        if changes {
            // Agents came or went during the round: the Services have other endpoints.
            replies.renew(self.round_of(number).services());
        }
        if number == 0 || has_changed || changes {
            self.settle(&mut replies).await;
        }
        let received = self.fleet.received(&replies).await;
        if number == 0 {
            self.policies(say).await?;
        }
        let after = self.fleet.facts(Role::Host).await;
        self.fleet.record(replies, &received, &mut self.cells);
        counters::record(&self.fleet.members, before, &after, &mut self.cells);
        self.fleet.record_links(&mut self.cells);
        self.cells.drop_paths(&self.test.skip);
        Ok(())
    }

    /// Removes failed probes of API servers that have left the cluster since the last round.
    async fn forget_former_api_servers(&mut self, replies: &mut Replies) {
        let Some(deployment) = self.deployment else { return };
        let failed = replies.take_failed(&self.fleet, |probe, _| probe.key.path == Path::ApiServer);
        if failed.is_empty() {
            return;
        }
        if let Ok(present) = api_servers(deployment.cluster()).await {
            self.targets.api_servers = present;
        }
        let targets = &self.targets;
        let is_present = |probe: &Probe| {
            let mut present = targets.api.iter().chain(&targets.api_servers);
            matches!(probe.ask, Ask::Connect { to } if present.any(|one| *one == to))
        };
        let (present, former): (Vec<_>, Vec<_>) =
            failed.into_iter().partition(|(probe, _)| is_present(probe));
        replies.0.extend(present);
        for (probe, _) in former {
            self.cells.record_untested(probe.key, "the API server has left the cluster");
        }
    }

    /// Reads which agents are there; returns whether one has come or has gone.
    async fn attend(&mut self, creates: bool) -> bool {
        let Some(deployment) = self.deployment else { return false };
        self.attendance.refresh(deployment, &mut self.fleet, creates, &mut self.cells).await
    }

    /// Opens the connections to agents that are missing.
    async fn connect(&mut self) {
        if let Some(deployment) = self.deployment {
            self.fleet.connect(deployment).await;
        }
    }

    fn round_of(&self, number: u32) -> Round<'_> {
        let is_there = |index: usize| !self.fleet.absent.contains_key(&(index, Role::Pod));
        let members = self.fleet.members.iter().enumerate().filter(|(index, _)| is_there(*index));
        let agents = members.filter_map(|(_, member)| member.agent(Role::Pod));
        Round {
            endpoints: agents.map(|agent| agent.name.clone()).collect(),
            members: &self.fleet.members,
            targets: &self.targets,
            schedule: &self.schedule,
            number: usize::try_from(number).unwrap_or_default(),
            ports: self.ports,
        }
    }

    /// Asks all agents.
    async fn replies(&mut self, number: u32) -> Replies {
        self.connect().await;
        let round = self.round_of(number);
        let mut probes = round.standing();
        probes.extend(round.probes());
        probes.retain(|probe| !self.test.skip.contains(&probe.key.path));
        let probes = self.fleet.without_absent(probes, &mut self.cells);
        let mut replies = self.fleet.ask(probes).await;
        // A connection through the API server can break without a fault of the network.
        let unanswered = replies.take_unanswered();
        if !unanswered.is_empty() {
            self.connect().await;
            let Replies(again) = self.fleet.ask(unanswered).await;
            replies.0.extend(again);
        }
        replies
    }

    /// Asks the failed probes of new Services again until they pass twice in a row, or the time is over: every kube-proxy and every name
    /// server needs a moment for them, but what passes only now and then has not settled.
    async fn settle(&mut self, replies: &mut Replies) {
        let (started, mut passed_once) = (Instant::now(), BTreeSet::new());
        while started.elapsed() < SETTLEMENT {
            let failed = replies.take_failed(&self.fleet, is_of_new_services);
            if failed.is_empty() && passed_once.is_empty() {
                return;
            }
            let again = if failed.is_empty() {
                replies.take(&std::mem::take(&mut passed_once))
            } else {
                passed_once.extend(failed.iter().map(|(probe, _)| probe.key.clone()));
                failed
            };
            sleep(PAUSE).await;
            replies.ask_again(&mut self.fleet, again).await;
        }
    }

    async fn policies(&mut self, say: Progress<'_>) -> std::result::Result<(), DeploymentError> {
        let Some(deployment) = self.deployment else { return Ok(()) };
        if self.test.skip.contains(&Path::PolicyDeny) && self.test.skip.contains(&Path::PolicyAllow) {
            return Ok(());
        }
        say("testing NetworkPolicies");
        let excluded = BTreeSet::new();
        let attendance = &mut self.attendance;
        let (schedule, port) = (&self.schedule, self.ports.0);
        let mut policies = Policies { deployment, schedule, port, excluded, attendance };
        policies.test(&mut self.fleet, &mut self.cells).await
    }

    fn has_new_failure(&self) -> bool {
        let baseline = self.test.baseline.as_ref();
        self.cells.failed().any(|(key, cell)| baseline.is_none_or(|baseline| !baseline.has_failed(key, cell)))
    }

    /// Records the kinds of paths between nodes of which there was none, because fewer than two nodes have an agent.
    fn record_missing_pairs(&mut self, nodes: &[String]) {
        let [first, second, ..] = nodes else { return };
        for path in [Path::NodeToNode, Path::PodToPod, Path::Loss, Path::FullSize, Path::Transfer] {
            if !self.test.skip.contains(&path) && self.cells.iter().all(|(key, _)| key.path != path) {
                let (from, to) = (first.as_str().into(), second.as_str().into());
                let key = CellKey { path, from, to, variant: "".into() };
                self.cells.record_untested(key, "fewer than two nodes have an agent");
            }
        }
    }

    fn result(mut self, rounds: u32, time: Duration, started: OffsetDateTime, ended_early: bool) -> Result {
        let nodes: Vec<String> = self.fleet.members.iter().map(|member| member.node.clone()).collect();
        self.record_missing_pairs(&nodes);
        Result {
            version: 1,
            started: started.replace_nanosecond(0).unwrap_or(started).format(&Rfc3339).unwrap_or_default(),
            seconds: time.as_secs_f64(),
            rounds,
            ended_early,
            rounds_to_cover: rounds_to_cover(nodes.len(), self.test.peers)
                .saturating_add(usize::try_from(self.resized).unwrap_or(usize::MAX)),
            nodes,
            policies: Vec::new(),
            paths: self
                .cells
                .into_iter()
                .map(|(key, cell)| PathResult { key, verdict: cell.verdict(), cell })
                .collect(),
        }
    }
}
