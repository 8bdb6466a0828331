//! `api-gates`: whether all API servers have the same feature gates, and whether these gates match the era of the allocations in
//! etcd.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;

use super::{CHECK_MANIFESTS, Renumber, ServerFlags};
use crate::inventory::unread;
use crate::kube_api::ClusterError;
use crate::preflight::{Check, Judged, Read, Source, Verdict, first_few};
use crate::renumber::feature_gates::not_as_stored;
use crate::words::counted;

/// The check.
pub const CHECK: Check<Renumber> = Check {
    name: "api-gates",
    why: "API servers with different feature gates store, repair and validate Services differently",
    needs: &[Source::Etcd, Source::Api],
    judge: |input| Box::pin(read(input)),
};

/// Checks the feature gates that each API server reports.
async fn read(input: &Renumber) -> Read<Judged> {
    let cluster = input.read.cluster()?;
    let asked = input.read.servers().await?.iter().map(async |server| {
        let gates = async || cluster.dial(*server).await?.feature_gates().await;
        gates().await.map(|gates| (server.to_string(), gates))
    });
    let gates: Result<Vec<_>, ClusterError> = join_all(asked).await.into_iter().collect();
    let gates = gates.map_err(unread)?;
    let alike = judge(&gates, input.server_flags().await?);
    if alike.verdict != Verdict::Pass {
        return Ok(alike);
    }
    let other = not_as_stored(&gates, input.survey().await?.era.era);
    Ok(other.map_or(alike, |(observed, remedy)| Judged::fail(observed, remedy)))
}

/// Checks whether all API servers report the same feature gates and have the same `--runtime-config`.
fn judge(gates: &[(String, BTreeMap<String, bool>)], servers: &[ServerFlags]) -> Judged {
    let configs: BTreeSet<&str> = servers.iter().map(runtime_config).collect();
    let mut wrong = Vec::new();
    if let Some(((first, own), others)) = gates.split_first() {
        for (at, other) in others {
            let differ = own.iter().filter(|(gate, on)| other.get(*gate).is_some_and(|there| there != *on));
            wrong.extend(differ.map(|(gate, on)| {
                let (yes, no) = if *on { (first, at) } else { (at, first) };
                format!("`{gate}` is on at {yes} and off at {no}")
            }));
        }
    }
    if configs.len() > 1 {
        let each = servers
            .iter()
            .map(|server| format!("{}: `--runtime-config={}`", server.0, runtime_config(server)));
        wrong.push(each.collect::<Vec<_>>().join(", "));
    }
    if !wrong.is_empty() {
        return Judged::fail(
            first_few(&wrong),
            "give all API servers the same `--feature-gates` and `--runtime-config`: finish the change in progress first",
        );
    }
    match gates.first() {
        Some((_, own)) if !own.is_empty() => Judged::pass(format!(
            "{} {}",
            counted(gates.len(), "API server with", "API servers with the same"),
            counted(own.len(), "feature gate", "feature gates")
        )),
        _ => Judged::unknown("no API server reports its feature gates (`/metrics`)", CHECK_MANIFESTS),
    }
}

fn runtime_config((_, flags): &ServerFlags) -> &str {
    flags.get("runtime-config").map(String::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::renumber::testing::server;

    #[test]
    fn servers_must_have_the_same_gates() {
        let gates = |at: &str, on: bool| (at.to_string(), BTreeMap::from([("WatchList".to_string(), on)]));
        assert_eq!(judge(&[gates("a", true), gates("b", true)], &[]).verdict, Verdict::Pass);
        let differ = judge(&[gates("a", false), gates("b", true)], &[]);
        assert_eq!(differ.observed, "`WatchList` is on at b and off at a");
        assert_eq!(differ.verdict, Verdict::Fail);
        let newer = ("b".to_string(), BTreeMap::from([("Newer".to_string(), true)]));
        assert_eq!(
            judge(&[gates("a", true), newer], &[]).verdict,
            Verdict::Pass,
            "a patch level may have more"
        );
        let configs = [server(&[("runtime-config", "api/all=true")]), server(&[])];
        assert_eq!(judge(&[gates("a", true)], &configs).verdict, Verdict::Fail);
        assert_eq!(judge(&[], &[]).verdict, Verdict::Unknown);
    }
}
