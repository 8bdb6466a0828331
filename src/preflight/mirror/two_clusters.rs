//! `two-clusters`: whether source and mirror are two different clusters, and whether the mirror is not older than the source.

use super::Mirror;
use crate::inventory::version::level;
use crate::inventory::{ClusterReader, unread};
use crate::preflight::{Check, Judged, Read, Source};

/// The check.
pub const CHECK: Check<Mirror> = Check {
    name: "two-clusters",
    why: "copying a cluster onto itself overwrites it, and an older version drops unknown fields",
    needs: &[Source::Api, Source::Mirror],
    judge: |input| Box::pin(read(input)),
};

async fn read(input: &Mirror) -> Read<Judged> {
    let (source, mirror) = tokio::try_join!(identity(&input.source.reader), identity(&input.target))?;
    Ok(judge(&source, &mirror))
}

async fn identity(reading: &ClusterReader) -> Read<Identity> {
    let cluster = reading.cluster()?;
    let (uid, version) = tokio::try_join!(cluster.identity(), cluster.version()).map_err(unread)?;
    Ok(Identity { uid, version: version.git, emulated: version.emulated })
}

/// The identity and the version of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    /// uid of the namespace `kube-system`.
    uid: String,
    /// Version, for example `v1.36.3`.
    version: String,
    /// Version that the cluster emulates, if it differs from its own version, for example `1.33`.
    emulated: Option<String>,
}

impl Identity {
    fn told(&self) -> String {
        match &self.emulated {
            Some(emulated) if self.minor() != level(&self.version).map(|(minor, _)| minor) => {
                format!("{} (emulates {emulated})", self.version)
            }
            _ => self.version.clone(),
        }
    }

    fn minor(&self) -> Option<u32> {
        let emulated = self.emulated.as_deref().and_then(|text| text.split_once('.')?.1.parse().ok());
        emulated.or_else(|| level(&self.version).map(|(minor, _)| minor))
    }
}

/// Checks whether source and mirror are two different clusters, and whether the mirror's minor version is the same or newer.
fn judge(source: &Identity, mirror: &Identity) -> Judged {
    if source.uid == mirror.uid {
        return Judged::fail(
            "the mirror and the source are the same cluster: their `kube-system` namespaces have the same UID",
            "give the kubeconfig or the context of the other cluster: `--mirror-kubeconfig`, `--mirror-context`",
        );
    }
    let seen = format!("the source has {}, the mirror has {}", source.told(), mirror.told());
    match (source.minor(), mirror.minor()) {
        (Some(of_source), Some(of_mirror)) if of_mirror < of_source => Judged::warn(
            format!("{seen}: the mirror is older"),
            "upgrade the mirror to the source's minor version: an older version drops or rejects unknown fields",
        ),
        _ => Judged::pass(seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    fn identity(uid: &str, version: &str, emulated: Option<&str>) -> Identity {
        Identity { uid: uid.into(), version: version.into(), emulated: emulated.map(str::to_string) }
    }

    #[test]
    fn mirror_must_be_another_cluster_and_not_older() {
        let source = identity("a", "v1.34.2+k3s1", None);
        assert_eq!(judge(&source, &identity("a", "v1.36.3", None)).verdict, Verdict::Fail);
        assert_eq!(judge(&source, &identity("b", "v1.34.0", None)).verdict, Verdict::Pass);
        assert_eq!(judge(&source, &identity("b", "v1.36.3", Some("1.36"))).verdict, Verdict::Pass);
        let older = judge(&source, &identity("b", "v1.36.3", Some("1.33")));
        assert_eq!(
            older.observed,
            "the source has v1.34.2+k3s1, the mirror has v1.36.3 (emulates 1.33): the mirror is older"
        );
        assert_eq!(judge(&source, &identity("b", "v1.32.2", None)).verdict, Verdict::Warn);
    }
}
