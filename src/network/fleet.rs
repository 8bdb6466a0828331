//! The agents of a test and the connections to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use super::cell::{CellKey, Cells, FaultClass, Observation};
use super::deployment::Deployment;
use super::expectation::{Expectation, judged};
use super::link::AgentLink;
use super::member::{Agent, Member, Role};
use super::objects::PROGRAM;
use super::path::Path;
use super::round::Probe;
use crate::agent::{Ask, Facts, Seen};

/// The number of connections that are opened at the same time.
const AT_ONCE: usize = 32;
/// The time for the replies of an agent, before the time of its own questions.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time that one question can take, in the worst case, divided by the number of questions at the same time.
const PER_QUESTION: Duration = Duration::from_millis(800);
/// The time for questions about what an agent already knows.
const AT_HAND: Duration = Duration::from_secs(20);

/// The agents of a test.
pub(super) struct Fleet {
    pub(super) members: Vec<Member>,
    links: BTreeMap<(usize, Role), AgentLink>,
    /// The UIDs of the agents to which there was a connection.
    known: BTreeMap<(usize, Role), String>,
    /// The agents that were connected again since the last record. Standing connections end with the connection to their agent.
    reconnected: BTreeSet<(usize, Role)>,
    /// Why there is no connection to an agent.
    broken: BTreeMap<(usize, Role), String>,
    /// Why an agent is not there.
    pub(super) absent: BTreeMap<(usize, Role), String>,
    /// Why a node is down, by its index.
    pub(super) down: BTreeMap<usize, String>,
    /// Why an absent agent may still be an endpoint of the Services.
    pub(super) lingering: Option<String>,
}

/// What an agent saw of each probe.
pub(super) struct Replies(pub(super) Vec<(Probe, Result<Seen, String>)>);

impl Replies {
    /// Removes the probes of some paths that failed, and returns them with what was seen.
    pub(super) fn take_failed(
        &mut self,
        fleet: &Fleet,
        is_wanted: impl Fn(&Probe, &Seen) -> bool,
    ) -> Vec<(Probe, Result<Seen, String>)> {
        let is_failed = |(probe, seen): &mut (Probe, Result<Seen, String>)| {
            seen.as_ref().is_ok_and(|seen| is_wanted(probe, seen)) && fleet.has_failed(probe, seen)
        };
        self.0.extract_if(.., is_failed).collect()
    }

    /// Removes the probes with these keys, and returns them with what was seen.
    pub(super) fn take(&mut self, keys: &BTreeSet<CellKey>) -> Vec<(Probe, Result<Seen, String>)> {
        self.0.extract_if(.., |(probe, _)| keys.contains(&probe.key)).collect()
    }

    /// Replaces what must come back, where `fresh` has the same probe.
    pub(super) fn renew(&mut self, fresh: Vec<Probe>) {
        let mut fresh: HashMap<CellKey, Probe> =
            fresh.into_iter().map(|probe| (probe.key.clone(), probe)).collect();
        for (probe, _) in &mut self.0 {
            if let Some(fresh) = fresh.remove(&probe.key) {
                *probe = fresh;
            }
        }
    }

    /// Removes the probes without a reply, and returns them.
    pub(super) fn take_unanswered(&mut self) -> Vec<Probe> {
        self.0.extract_if(.., |(_, seen)| seen.is_err()).map(|(probe, _)| probe).collect()
    }

    /// Asks failed probes again. A probe without a reply keeps what was seen before.
    pub(super) async fn ask_again(&mut self, fleet: &mut Fleet, failed: Vec<(Probe, Result<Seen, String>)>) {
        let mut before: HashMap<CellKey, Result<Seen, String>> =
            failed.iter().map(|(probe, seen)| (probe.key.clone(), seen.clone())).collect();
        let Replies(again) = fleet.ask(failed.into_iter().map(|(probe, _)| probe).collect()).await;
        for (probe, seen) in again {
            let former = before.remove(&probe.key);
            let seen = if seen.is_err() { former.unwrap_or(seen) } else { seen };
            self.0.push((probe, seen));
        }
    }
}

impl Fleet {
    /// Returns agents to which there are connections.
    pub(super) fn new(members: Vec<Member>, links: BTreeMap<(usize, Role), AgentLink>) -> Self {
        Self {
            members,
            links,
            known: BTreeMap::new(),
            reconnected: BTreeSet::new(),
            broken: BTreeMap::new(),
            absent: BTreeMap::new(),
            down: BTreeMap::new(),
            lingering: None,
        }
    }

    /// Whether an agent is the one that is asked. A Pod has other addresses after its sandbox was created again, for example by a reboot.
    pub(super) fn is_known(&self, (index, role): (usize, Role), agent: &Agent) -> bool {
        let known = self.members.get(index).and_then(|member| member.agent(role));
        known.is_some_and(|known| known.uid == agent.uid && known.addresses == agent.addresses)
    }

    /// Takes over an agent whose Pod was created again.
    pub(super) fn replace(&mut self, (index, role): (usize, Role), agent: Agent) {
        let Some(member) = self.members.get_mut(index) else { return };
        let generation = member.agent(role).map_or(0, |former| former.generation.saturating_add(1));
        member.agents.insert(role, Agent { generation, ..agent });
        self.links.remove(&(index, role));
        self.broken.remove(&(index, role));
    }

    /// Marks an agent as absent.
    pub(super) fn remove(&mut self, at: (usize, Role), reason: String) {
        self.links.remove(&at);
        self.broken.remove(&at);
        self.absent.insert(at, reason);
    }

    /// Returns why a probe that did not pass says nothing about the network.
    fn excuse(&self, probe: &Probe) -> Option<&str> {
        let absent = self.absent_end(probe);
        let ends = [Some(probe.asker), probe.target];
        let down = || ends.into_iter().flatten().find_map(|(node, _)| self.down.get(&node));
        let lingering = || self.lingering.as_ref().filter(|_| probe.key.path.needs_services());
        absent.or_else(down).or_else(lingering).map(String::as_str)
    }

    /// Returns why an agent is absent that a probe needs. An API server answers without the agent on its node.
    fn absent_end(&self, probe: &Probe) -> Option<&String> {
        let target = probe.target.filter(|_| probe.key.path != Path::ApiServer);
        [Some(probe.asker), target].into_iter().flatten().find_map(|end| self.absent.get(&end))
    }

    /// Records the probes from and to absent agents as not tested, and returns the others.
    pub(super) fn without_absent(&self, mut probes: Vec<Probe>, cells: &mut Cells) -> Vec<Probe> {
        for probe in &probes {
            if let Some(reason) = self.absent_end(probe) {
                cells.record_untested(probe.key.clone(), reason);
            }
        }
        probes.retain(|probe| self.absent_end(probe).is_none());
        probes
    }

    /// Opens the connections that are missing, and waits until their agents reply.
    pub(super) async fn connect(&mut self, deployment: &Deployment) {
        let (cluster, settings) = (deployment.cluster(), deployment.settings());
        let port = settings.port.to_string();
        let mut wanted = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            for role in Role::ALL {
                if let Some(agent) = member.agent(role)
                    && !self.links.contains_key(&(index, role))
                    && !self.absent.contains_key(&(index, role))
                {
                    wanted.push(((index, role), agent.name.clone()));
                }
            }
        }
        let opened = stream::iter(wanted.into_iter().map(async |(at, name)| {
            let command = [PROGRAM, "agent", "probe", "--name", &name, "--port", &port];
            let link = cluster.exec(&settings.namespace, &name, &command).await.and_then(|mut command| {
                let (input, output) = command.streams().ok_or("the command has no streams")?;
                Ok(AgentLink::new(input, output, command))
            });
            let link = match link {
                Ok(link) => {
                    link.ask(&[Ask::Facts], PATIENCE).await.1.map_or(Ok(link), |error| Err(error.to_string()))
                }
                refused => refused,
            };
            (at, link)
        }));
        let opened: Vec<_> = opened.buffer_unordered(AT_ONCE).collect().await;
        for (at, link) in opened {
            match link {
                Ok(link) => {
                    self.links.insert(at, link);
                    self.broken.remove(&at);
                    let uid = self.members.get(at.0).and_then(|member| member.agent(at.1));
                    let uid = uid.map(|agent| agent.uid.clone()).unwrap_or_default();
                    if self.known.insert(at, uid.clone()) == Some(uid) {
                        self.reconnected.insert(at);
                    }
                }
                Err(reason) => {
                    self.broken.insert(at, reason);
                }
            }
        }
    }

    /// Asks every probe, each agent its own ones. An agent that does not reply is disconnected.
    pub(super) async fn ask(&mut self, probes: Vec<Probe>) -> Replies {
        let mut by_agent: BTreeMap<(usize, Role), Vec<Probe>> = BTreeMap::new();
        for probe in probes {
            by_agent.entry(probe.asker).or_default().push(probe);
        }
        let links = &self.links;
        let asked = by_agent.into_iter().map(async |(at, probes)| {
            let Some(link) = links.get(&at) else { return (at, probes, Vec::new(), None) };
            let asks: Vec<Ask> = probes.iter().map(|probe| probe.ask.clone()).collect();
            let count = u32::try_from(asks.len()).unwrap_or(u32::MAX);
            let limit = PATIENCE.saturating_add(PER_QUESTION.saturating_mul(count));
            let (seen, error) = link.ask(&asks, limit).await;
            (at, probes, seen, error.map(|error| error.to_string()))
        });
        let all: Vec<_> = futures_util::future::join_all(asked).await;
        let mut replies = Vec::new();
        for (at, probes, seen, error) in all {
            let reason = error.clone().or_else(|| self.broken.get(&at).cloned());
            let reason = reason.unwrap_or_else(|| "there is no connection to the agent".to_string());
            if error.is_some() {
                self.links.remove(&at);
                self.broken.insert(at, reason.clone());
            }
            let mut seen = seen.into_iter();
            for probe in probes {
                let reply = seen.next().flatten().ok_or_else(|| reason.clone());
                replies.push((probe, reply));
            }
        }
        Replies(replies)
    }

    /// Returns the connections that broke: for each, its agent's cell and the reason.
    pub(super) fn record_links(&self, cells: &mut Cells) {
        for (index, member) in self.members.iter().enumerate() {
            for role in Role::ALL {
                let Some(agent) = member.agent(role) else { continue };
                let key = CellKey {
                    path: Path::Agent,
                    from: member.node.as_str().into(),
                    to: agent.name.as_str().into(),
                    variant: role.name().into(),
                };
                let is_gone = self.absent.get(&(index, role));
                let is_down = self.down.get(&index).filter(|_| self.broken.contains_key(&(index, role)));
                if let Some(reason) = is_gone.or(is_down) {
                    cells.record_untested(key, reason);
                    continue;
                }
                let (seen, fault) = match self.broken.get(&(index, role)) {
                    Some(reason) => (reason.clone(), Some(FaultClass::Broken)),
                    None => ("it reports".to_string(), None),
                };
                let tried = format!("`kubectl exec` into Pod `{}`", agent.name);
                cells.record(key, Observation { tried, seen, fault });
            }
        }
    }

    /// Asks all receivers of series how many datagrams arrived, by the key of the series.
    pub(super) async fn received(&self, replies: &Replies) -> HashMap<u64, u16> {
        let mut by_receiver: BTreeMap<(usize, Role), Vec<u64>> = BTreeMap::new();
        for (probe, _) in &replies.0 {
            if let Expectation::Series { receiver, key, .. } = &probe.expectation {
                by_receiver.entry(*receiver).or_default().push(*key);
            }
        }
        let asked = by_receiver.into_iter().map(async |(at, keys)| {
            let Some(link) = self.links.get(&at) else { return Vec::new() };
            let asks: Vec<Ask> = keys.iter().map(|key| Ask::Received { key: *key }).collect();
            let (seen, _) = link.ask(&asks, AT_HAND).await;
            let counts = keys.into_iter().zip(seen).filter_map(|(key, seen)| match seen {
                Some(Seen::Received { datagrams, .. }) => Some((key, datagrams)),
                _ => None,
            });
            counts.collect()
        });
        futures_util::future::join_all(asked).await.into_iter().flatten().collect()
    }

    /// Returns the counters of the agents with a role, by the index of their node.
    pub(super) async fn facts(&self, role: Role) -> BTreeMap<usize, Facts> {
        let asked = self.links.iter().filter(|((_, of), _)| *of == role).map(async |((index, _), link)| {
            let (seen, _) = link.ask(&[Ask::Facts], AT_HAND).await;
            match seen.into_iter().next().flatten() {
                Some(Seen::Facts(facts)) => Some((*index, *facts)),
                _ => None,
            }
        });
        futures_util::future::join_all(asked).await.into_iter().flatten().collect()
    }

    /// Whether a reply is missing or is that of a fault.
    pub(super) fn has_failed(&self, probe: &Probe, seen: &Result<Seen, String>) -> bool {
        let judge = |seen: &Seen| judged(&probe.expectation, seen, None, &self.members, "").fault;
        !seen.as_ref().is_ok_and(|seen| judge(seen).is_none())
    }

    /// Judges the replies, and records them.
    pub(super) fn record(&mut self, replies: Replies, received: &HashMap<u64, u16>, cells: &mut Cells) {
        let reconnected = std::mem::take(&mut self.reconnected);
        for (probe, seen) in replies.0 {
            if probe.key.path == Path::StandingConnection
                && reconnected.contains(&probe.asker)
                && !self.has_failed(&probe, &seen)
            {
                let reason = "the connection through the API server to the agent ended, and its standing connections with it";
                cells.record_untested(probe.key, reason);
                continue;
            }
            let arrived = match &probe.expectation {
                Expectation::Series { key, .. } => received.get(key).copied(),
                _ => None,
            };
            let Some(observation) = self.observation(&probe, &seen, arrived, cells) else { continue };
            match seen {
                Ok(Seen::Echoes { sent, answered, .. }) => {
                    let lost = u64::from(sent.saturating_sub(answered));
                    cells.record_series(probe.key, (u64::from(sent), lost), |_, _| observation);
                }
                _ => cells.record(probe.key, observation),
            }
        }
    }

    /// Returns what a reply says about the network. Records a probe as not tested if it says nothing.
    pub(super) fn observation(
        &self,
        probe: &Probe,
        seen: &Result<Seen, String>,
        arrived: Option<u16>,
        cells: &mut Cells,
    ) -> Option<Observation> {
        let excuse = self.excuse(probe);
        let untested = match seen {
            Ok(seen) => {
                let observation = judged(&probe.expectation, seen, arrived, &self.members, &probe.tried);
                match excuse {
                    Some(excuse) if observation.fault.is_some() => excuse,
                    _ => return Some(observation),
                }
            }
            Err(reason) => excuse.unwrap_or(reason),
        };
        cells.record_untested(probe.key.clone(), untested);
        None
    }
}
