//! The options for connections to the Kubernetes API of the cluster and of its mirror.

use std::path::PathBuf;
use std::sync::Once;
use std::time::Duration;

use async_trait::async_trait;
use clap::Args;
use tokio::time::{Instant, sleep};

use super::output::warn;
use crate::kube_api::{Cluster, ClusterOptions};
use crate::session::{Connect, Failure};

/// The pause between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// How to reach the Kubernetes API.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Kubernetes API")]
pub struct KubeArgs {
    /// The kubeconfig file [default: the file that kubectl uses; if there is none, the Pod's service account or
    /// `/etc/kubernetes/admin.conf`]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl KubeArgs {
    /// Connects to the API.
    pub async fn connect(&self) -> Result<Cluster, Failure> {
        Ok(warned(self.connect_silently().await?))
    }

    /// Connects to the API, without the warning that [`Self::connect`] can print.
    pub async fn connect_silently(&self) -> Result<Cluster, Failure> {
        Ok(Cluster::connect(&self.options()).await?)
    }

    /// Connects to the API. If the API server does not answer, for example during a restart, retries for up to `patience`.
    pub async fn connect_within(&self, patience: Duration) -> Result<Cluster, Failure> {
        let started = Instant::now();
        loop {
            match Cluster::connect(&self.options()).await {
                Err(error) if error.is_transient() && started.elapsed() < patience => sleep(PAUSE).await,
                outcome => return Ok(warned(outcome?)),
            }
        }
    }

    fn options(&self) -> ClusterOptions {
        let (kubeconfig, context) = (self.kubeconfig.clone(), self.context.clone());
        ClusterOptions { kubeconfig, context, ..ClusterOptions::default() }
    }
}

#[async_trait]
impl Connect for KubeArgs {
    async fn connect(&self) -> Result<Cluster, Failure> {
        Self::connect(self).await
    }
}

/// Warns once if the kubeconfig disables the verification of the API server's certificate.
fn warned(cluster: Cluster) -> Cluster {
    static WARNED: Once = Once::new();
    if cluster.is_unverified() {
        WARNED.call_once(|| {
            warn(&format!(
                "the kubeconfig has `insecure-skip-tls-verify`: a host on the path to `{}` can read the credentials and forge \
                 answers; use `certificate-authority` instead",
                cluster.server()
            ));
        });
    }
    cluster
}

/// How to reach the Kubernetes API of a mirror: a second cluster that will serve the same workloads.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Kubernetes API of the mirror")]
pub struct MirrorKubeArgs {
    /// The kubeconfig file of the mirror [default: the kubeconfig file of the cluster, if `--mirror-context` is given]
    #[arg(long, value_name = "FILE")]
    mirror_kubeconfig: Option<PathBuf>,
    /// The context of the mirror [default: the current context of its kubeconfig]
    #[arg(long, value_name = "NAME")]
    mirror_context: Option<String>,
}

impl MirrorKubeArgs {
    /// Returns the options to connect to the mirror, if a mirror is given. `own` contains the options for the cluster itself.
    pub fn named(&self, own: &KubeArgs) -> Option<KubeArgs> {
        let (kubeconfig, context) = (self.mirror_kubeconfig.clone(), self.mirror_context.clone());
        match (&kubeconfig, &context) {
            (None, None) => None,
            (None, Some(_)) => Some(KubeArgs { kubeconfig: own.kubeconfig.clone(), context }),
            (Some(_), _) => Some(KubeArgs { kubeconfig, context }),
        }
    }

    /// Returns the options to connect to the mirror. Fails if no mirror is given.
    pub fn required(&self, own: &KubeArgs) -> Result<KubeArgs, Failure> {
        self.named(own).ok_or_else(|| {
            Failure::usage("no mirror is given")
                .hint("give `--mirror-kubeconfig FILE`; or, if one kubeconfig has both clusters, `--mirror-context NAME`")
        })
    }
}

/// How to reach the Kubernetes API of the source of a mirror operation, which is recorded in the mirror.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Kubernetes API of the source")]
pub struct SourceKubeArgs {
    /// The kubeconfig file of the source of a mirror operation [default: the kubeconfig file of the mirror, if
    /// `--source-context` is given]
    #[arg(long, value_name = "FILE")]
    source_kubeconfig: Option<PathBuf>,
    /// The context of the source of a mirror operation [default: the current context of its kubeconfig]
    #[arg(long, value_name = "NAME")]
    source_context: Option<String>,
}

impl SourceKubeArgs {
    /// Returns the options to connect to the source, if a source is given. `mirror` contains the options for the mirror.
    pub fn named(&self, mirror: &KubeArgs) -> Option<KubeArgs> {
        let (mirror_kubeconfig, mirror_context) =
            (self.source_kubeconfig.clone(), self.source_context.clone());
        MirrorKubeArgs { mirror_kubeconfig, mirror_context }.named(mirror)
    }

    /// Refuses these options for an operation of another kind.
    pub fn refuse_of_another_kind(&self) -> Result<(), Failure> {
        if self.source_kubeconfig.is_none() && self.source_context.is_none() {
            return Ok(());
        }
        Err(Failure::usage("`--source-kubeconfig` and `--source-context` are only for a mirror operation")
            .hint("omit these options"))
    }
}
