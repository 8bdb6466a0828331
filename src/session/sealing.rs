//! Whether the API server opens what is sealed here: it must seal a Service as the encryption configuration given does.

use super::{Failure, LiveEtcd};
use crate::cluster::Cluster;
use crate::store::{ReadStore as _, StoreError};
use crate::survey::Layout;
use crate::wire::Envelope;
use crate::wire::envelope::PROTOBUF_MAGIC;

/// Where the Service is made.
const NAMESPACE: &str = "kube-system";

/// Has the API server write a Service, and compares. What is stored already tells only what it was sealed with when it was
/// written: under an old key, or by us.
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
        "the API server at {} stores Services {theirs}, with the encryption configuration given they would be stored {ours}",
        cluster.server()
    );
    Err(Failure::refused(text).hint(
        "give the file that the API servers have in `--encryption-provider-config` now; nothing was changed",
    ))
}

fn words(value: &[u8]) -> String {
    match Envelope::of(value) {
        Ok(Envelope::Encrypted { provider, key }) => format!("under the key `{key}` of `{provider}`"),
        _ => "in the clear".to_string(),
    }
}
