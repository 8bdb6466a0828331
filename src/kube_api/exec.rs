//! Runs a command in a container of a Pod (`pods/exec`). The API server and the kubelet forward its input and output, so this path
//! does not use the Pod network.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams, AttachedProcess};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::chain::chain;
use super::resource::segment;
use super::{Cluster, ClusterError};

/// The size of the buffer of each stream, in bytes.
const BUFFER: usize = 256 << 10;
/// The time until the command must run.
const START: Duration = Duration::from_secs(20);

/// A command that runs in a Pod. Its connection is closed on drop; the kubelet then closes its input.
pub struct PodCommand {
    attached: AttachedProcess,
}

impl Cluster {
    /// Starts a command in the only container of a Pod. The error is the reason for people, because it concerns one Pod of many.
    ///
    /// Needs the permissions `get` and `create` on `pods/exec`: the request is a GET with an upgrade to WebSocket, and API servers
    /// since 1.35 also check `create` (KEP-5836).
    pub async fn exec(&self, namespace: &str, pod: &str, command: &[&str]) -> Result<PodCommand, String> {
        let checked = segment(pod).and(segment(namespace)).map_err(|error: ClusterError| error.to_string());
        checked?;
        let pods = Api::<Pod>::namespaced(self.connection.client(), namespace);
        let how = AttachParams::default().stdin(true).stdout(true).stderr(false);
        let how = how.max_stdin_buf_size(BUFFER).max_stdout_buf_size(BUFFER);
        let started = timeout(START, pods.exec(pod, command.iter().copied(), &how));
        match started.await {
            Ok(Ok(attached)) => Ok(PodCommand { attached }),
            Ok(Err(error)) => Err(chain(&error)),
            Err(_) => Err(format!("no connection within {} s", START.as_secs())),
        }
    }
}

impl PodCommand {
    /// Returns the input and the output of the command. Only the first call returns them.
    pub fn streams(
        &mut self,
    ) -> Option<(impl AsyncWrite + Send + Unpin + 'static, impl AsyncRead + Send + Unpin + 'static)> {
        self.attached.stdin().zip(self.attached.stdout())
    }
}

impl Drop for PodCommand {
    fn drop(&mut self) {
        self.attached.abort();
    }
}
