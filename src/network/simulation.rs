//! Rounds without a cluster. For measurements of large matrices.

use std::collections::BTreeMap;
use std::pin::pin;

use super::attendance::Attendance;
use super::cell::Cells;
use super::course::{Course, Progress};
use super::deployment::DeploymentError;
use super::fleet::Fleet;
use super::link::AgentLink;
use super::member::{Member, Role};
use super::options::Test;
use super::result::Result;
use super::round::{ALL_PAIRS, Schedule, Targets};

/// Runs rounds with agents that the caller started.
pub async fn simulate(
    test: &Test,
    members: Vec<Member>,
    links: BTreeMap<(usize, Role), AgentLink>,
    port: u16,
    say: Progress<'_>,
) -> std::result::Result<Option<Result>, DeploymentError> {
    let schedule = Schedule::new(members.len(), test.peers, 1);
    let cells = Cells::new(members.len() > ALL_PAIRS);
    let fleet = Fleet::new(members, links);
    let (targets, ports) = (Targets::default(), (port, port));
    let attendance = Attendance::new(test);
    let course =
        Course { test, deployment: None, fleet, attendance, cells, targets, schedule, resized: 0, ports };
    course.rounds(pin!(std::future::pending()), say).await
}
