//! `ssh`: which nodes accept connections on the SSH port.

use futures_util::{StreamExt as _, stream};

use crate::inventory::ClusterReader;
use crate::kube_api::Node;
use crate::preflight::{Check, Judged, Read, Source, first_few};
use crate::words::counted;

/// Number of concurrent connections to nodes. If a firewall drops packets, each connection waits for its time limit.
const CONNECTIONS: usize = 1024;

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<ClusterReader>>(why: &'static str) -> Check<C> {
    Check { name: "ssh", why, needs: &[Source::Api], judge: |input| Box::pin(read(input.as_ref())) }
}

async fn read(reading: &ClusterReader) -> Read<Judged> {
    let nodes: Vec<Node> = reading.nodes().await?.iter().map(Node::of).collect();
    let asked = nodes.iter().map(async |node| {
        let address = node.speaks_ssh().await?;
        Some(format!("`{}` ({address})", node.name))
    });
    let open: Vec<_> = stream::iter(asked).buffered(CONNECTIONS).collect().await;
    Ok(judge(&open.into_iter().flatten().collect::<Vec<_>>(), nodes.len()))
}

/// Checks the nodes for an SSH server. `open`: nodes that answer. `asked`: number of tested nodes.
fn judge(open: &[String], asked: usize) -> Judged {
    if open.is_empty() {
        return Judged::pass(format!(
            "port 22 answers this host on 0 of {}",
            counted(asked, "host", "hosts")
        ));
    }
    Judged::warn(
        format!(
            "port 22 answers this host on {} of {}: {}",
            open.len(),
            counted(asked, "host", "hosts"),
            first_few(open)
        ),
        "allow the port only from a bastion host; keep access to the control-plane hosts, because certificates and flags change there; \
         on other nodes use `kubectl debug node/NAME` while the API answers",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn nodes_with_open_ssh_are_named() {
        assert_eq!(judge(&[], 3).observed, "port 22 answers this host on 0 of 3 hosts");
        let open = judge(&["`node-1` (192.0.2.1)".to_string()], 3);
        assert_eq!(open.verdict, Verdict::Warn);
        assert_eq!(open.observed, "port 22 answers this host on 1 of 3 hosts: `node-1` (192.0.2.1)");
    }
}
