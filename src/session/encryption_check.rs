//! Checks that the given encryption configuration encrypts a Service as the API server does.

use super::{Failure, LiveEtcd};
use crate::kube_api::Cluster;
use crate::store::{ReadStore as _, StoreError};
use crate::survey::Layout;
use crate::wire::Envelope;
use crate::wire::envelope::PROTOBUF_MAGIC;

/// Namespace of the Service that the check writes.
const NAMESPACE: &str = "kube-system";

/// Lets the API server write a Service, and compares its encryption with the given configuration. Existing objects cannot be
/// used, because they show only the encryption at the time of their last write. An old key may have been in use at that time, or
/// netsurgeon may have written the object.
pub(super) async fn same_seal(store: &LiveEtcd, cluster: &Cluster, layout: &Layout) -> Result<(), Failure> {
    let Some(seal) = store.seal() else { return Ok(()) };
    let ours = |name: &str| {
        let key = layout.service(NAMESPACE, name);
        let sealed = seal.seal(key.as_bytes(), PROTOBUF_MAGIC);
        sealed.map_err(|error| StoreError::Sealed { key: key.to_string(), reason: error.0 })
    };
    let look = async |name: &str| {
        let ours = ours(name)?.unwrap_or_else(|| PROTOBUF_MAGIC.to_vec());
        Ok::<_, StoreError>((ours, store.bare().get(&layout.service(NAMESPACE, name)).await?))
    };
    let (ours, theirs) = cluster.with_a_trial(NAMESPACE, look).await??;
    let (ours, theirs) = (words(&ours), words(&theirs.map(|entry| entry.value).unwrap_or_default()));
    if ours == theirs {
        return Ok(());
    }
    let text = format!(
        "the API server at {} stores Services {theirs}, but with the given encryption configuration netsurgeon would store \
         them {ours}",
        cluster.server()
    );
    Err(Failure::refused(text)
        .hint("nothing was changed; give the current `--encryption-provider-config` file of the API servers"))
}

fn words(value: &[u8]) -> String {
    match Envelope::of(value) {
        Ok(Envelope::Encrypted { provider, key }) => {
            format!("encrypted with the key `{key}` of `{provider}`")
        }
        _ => "unencrypted".to_string(),
    }
}
