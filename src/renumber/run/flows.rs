//! Finds clients that still use an old address, in the connection tracking of this host's kernel.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Ongoing;
use crate::host::conntrack::flows_to;
use crate::renumber::old_address_clients::{Count, Used, given_up, users};
use crate::session::{ExitKind, Failure};

/// Maximum number of clients that a line names.
const SHOWN: usize = 5;

/// Returns the clients that use old addresses of moved Services. If connection tracking cannot be read, the hint explains on
/// which hosts this command works.
pub async fn flows_of(ongoing: &Ongoing) -> Result<Vec<Used>, Failure> {
    users_of(ongoing).await.map_err(|failure| {
        failure.hint(
            "run this on a node, as root; if the kernel has no `/proc/net/nf_conntrack`, install the program \
                      `conntrack`",
        )
    })
}

/// Returns the clients that use old addresses of moved Services, from this host's connection tracking.
pub(super) async fn users_of(ongoing: &Ongoing) -> Result<Vec<Used>, Failure> {
    let given_up = given_up(&ongoing.plan.work, |step| ongoing.journal.state(step));
    let addresses: BTreeSet<IpAddr> = given_up.keys().copied().collect();
    let read = tokio::task::spawn_blocking(move || flows_to(&|address| addresses.contains(&address)));
    let flows = read.await.map_err(|error| Failure::refused(error.to_string()))?;
    Ok(users(&given_up, &flows.map_err(|error| Failure::new(ExitKind::Refused, error))?))
}

/// Returns one line of text that describes the use of a port of an old address.
pub fn words(used: &Used) -> String {
    let port = used.port.map(|port| format!(" port {port}")).unwrap_or_default();
    let (service, address, protocol) = (&used.service, used.old_address, &used.protocol);
    let mut clients: Vec<String> =
        used.clients.iter().take(SHOWN).map(|client| client.address.to_string()).collect();
    let more = used.clients.len().saturating_sub(SHOWN);
    if more > 0 {
        clients.push(format!("and {more} more"));
    }
    let (Count { open, ended }, clients) = (used.count, clients.join(", "));
    format!(
        "old address of {service}, {address} {protocol}{port}: connections: {open} open, {ended} recently ended, from {clients}"
    )
}
