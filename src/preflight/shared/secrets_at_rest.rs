//! `secrets-at-rest`: whether the Secrets in etcd are encrypted.

use crate::inventory::ClusterReader;
use crate::preflight::{Check, Judged, Read, Source};
use crate::wire::Envelope;
use crate::words::all_of;

/// Returns the check. `why`: why the check matters before this change.
pub const fn check<C: AsRef<ClusterReader>>(why: &'static str) -> Check<C> {
    Check {
        name: "secrets-at-rest",
        why,
        needs: &[Source::Etcd],
        judge: |input| Box::pin(read(input.as_ref())),
    }
}

async fn read(reading: &ClusterReader) -> Read<Judged> {
    let mut found = Secrets::default();
    reading.each_secret(|record| found.take(record.value)).await?;
    Ok(judge(found))
}

/// Numbers of encrypted and of unencrypted Secrets in etcd.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Secrets {
    /// Number of encrypted Secrets.
    encrypted: usize,
    /// Number of unencrypted Secrets.
    plain: usize,
}

impl Secrets {
    /// Counts a stored Secret.
    fn take(&mut self, value: &[u8]) {
        let is_encrypted = matches!(Envelope::of(value), Ok(Envelope::Encrypted { .. }));
        let count = if is_encrypted { &mut self.encrypted } else { &mut self.plain };
        *count = count.saturating_add(1);
    }
}

/// Checks for unencrypted Secrets, because every snapshot contains them, too.
fn judge(found: Secrets) -> Judged {
    let Secrets { encrypted, plain } = found;
    let all = encrypted.saturating_add(plain);
    match plain {
        0 if all == 0 => Judged::pass("no Secrets"),
        0 => Judged::pass(all_of(all, "Secret in etcd is encrypted", "Secrets in etcd are encrypted")),
        plain => Judged::warn(
            format!("unencrypted in etcd and in every snapshot: {plain} of {all} Secrets"),
            "give every API server an `--encryption-provider-config`, then rewrite the Secrets: `kubectl get secrets -A -o json | \
             kubectl replace -f -` (docs/encryption.md); until then restrict access to snapshots",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Verdict;

    #[test]
    fn unencrypted_secret_is_a_warning() {
        let mut found = Secrets::default();
        assert_eq!(judge(found).verdict, Verdict::Pass);
        found.take(b"k8s:enc:secretbox:v1:key1:xx");
        assert_eq!(judge(found), Judged::pass("1 Secret in etcd is encrypted"));
        found.take(b"k8s\0");
        let judged = judge(found);
        assert_eq!(judged.verdict, Verdict::Warn);
        assert!(judged.observed.ends_with(": 1 of 2 Secrets"), "{judged:?}");
    }
}
