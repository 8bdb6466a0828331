//! Who still uses an old address, by what the kernel of this host tracks: `status --flows`, and what `retire` refuses for.

use std::net::IpAddr;

use clap::Args;
use serde::Serialize;

use crate::cli::failure::{Failure, Kind};
use crate::cli::live::Ongoing;
use crate::host::conntrack::flows_to;
use crate::renumber::users::{Count, Used, given_up, users};

/// As many clients as fit on a line.
const SHOWN: usize = 5;

/// Whether to look.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct FlowArgs {
    /// Say who still uses an old address, by the connections that this host tracks: on a node, as root. Each node knows
    /// its own pods only
    #[arg(long)]
    flows: bool,
}

/// A port of an old address that somebody uses.
#[derive(Debug, Clone, Serialize)]
pub(super) struct User {
    service: String,
    old_address: IpAddr,
    protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    /// Connections that may still be in use.
    open: usize,
    /// Connections that have ended a moment ago.
    ended: usize,
    clients: Vec<Client>,
}

/// Who uses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Client {
    address: IpAddr,
    open: usize,
    ended: usize,
}

/// How many connections there are is no news.
impl PartialEq for User {
    fn eq(&self, other: &Self) -> bool {
        let of = |user: &Self| {
            let clients: Vec<IpAddr> = user.clients.iter().map(|client| client.address).collect();
            (user.service.clone(), user.protocol.clone(), user.port, clients)
        };
        of(self) == of(other)
    }
}

impl Eq for User {}

impl User {
    fn of(used: Used) -> Self {
        let Count { open, ended } = used.count();
        let client = |(address, Count { open, ended })| Client { address, open, ended };
        let clients = used.clients.into_iter().map(client).collect();
        let Used { subject: service, address: old_address, protocol, port, .. } = used;
        Self { service, old_address, protocol, port, open, ended, clients }
    }

    /// Returns a line for people.
    pub(super) fn words(&self) -> String {
        let port = self.port.map(|port| format!(" port {port}")).unwrap_or_default();
        let (service, address, protocol) = (&self.service, self.old_address, &self.protocol);
        let mut clients: Vec<String> =
            self.clients.iter().take(SHOWN).map(|client| client.address.to_string()).collect();
        let more = self.clients.len().saturating_sub(SHOWN);
        if more > 0 {
            clients.push(format!("{more} more"));
        }
        let (open, ended, clients) = (self.open, self.ended, clients.join(", "));
        format!(
            "old address of {service}, {address} {protocol}{port}: {open} open, {ended} ended just now, of {clients}"
        )
    }
}

impl FlowArgs {
    /// Returns who uses the old addresses of Services that have moved; `None` if nobody asked.
    pub(super) async fn run(&self, ongoing: &Ongoing) -> Result<Option<Vec<User>>, Failure> {
        if !self.flows {
            return Ok(None);
        }
        let users = users_of(ongoing).await.map_err(|error| {
            Failure::new(Kind::Refused, error)
                .hint("run it on a node, as root; a kernel without that file needs the program `conntrack`")
        })?;
        Ok(Some(users))
    }
}

/// Returns who uses the old addresses of Services that have moved, by what this host tracks.
pub(super) async fn users_of(ongoing: &Ongoing) -> anyhow::Result<Vec<User>> {
    let given_up = given_up(&ongoing.plan.work, |step| ongoing.journal.state(step));
    let addresses = given_up.keys().copied().collect();
    let flows = tokio::task::spawn_blocking(move || flows_to(&addresses)).await??;
    Ok(users(&given_up, &flows).into_iter().map(User::of).collect())
}
