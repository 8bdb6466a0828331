//! The store that a command reads: a snapshot file or a live etcd. Flags, `ETCDCTL_*` variables, or the files of kubeadm on a
//! control-plane host select the store.
//!
//! `resolve` only checks arguments and files; `open` and `connect` open the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use zeroize::Zeroizing;

use super::Context;
use crate::encryption::Keyring;
use crate::operation::Journal;
use crate::renumber::run::{open_operation, unfinished};
use crate::session::{ExitKind, Failure, LiveEtcd};
use crate::store::etcd::{EtcdOptions, EtcdStore};
use crate::store::seal::{Lenient, Seal, Sealed};
use crate::store::snapshot::SnapshotStore;
use crate::store::{KeyRange, ReadStore, Revision};
use crate::survey::{Layout, Ours, Survey};
use crate::words::pasted;

/// How to reach etcd.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "etcd")]
pub struct EtcdArgs {
    /// Client URLs of etcd, separated by commas
    #[arg(
        long,
        value_name = "URL",
        env = "ETCDCTL_ENDPOINTS",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub etcd_endpoints: Vec<String>,
    /// CA certificate to verify etcd's server certificates
    #[arg(long, value_name = "FILE", env = "ETCDCTL_CACERT", hide_env_values = true)]
    pub etcd_cacert: Option<PathBuf>,
    /// Client certificate
    #[arg(long, value_name = "FILE", env = "ETCDCTL_CERT", hide_env_values = true)]
    pub etcd_cert: Option<PathBuf>,
    /// Private key of the client certificate
    #[arg(long, value_name = "FILE", env = "ETCDCTL_KEY", hide_env_values = true)]
    pub etcd_key: Option<PathBuf>,
    /// Name of the etcd user, or name and password. The environment variable is safer for a password, because `ps` does not show
    /// the variable
    #[arg(long, value_name = "NAME[:PASSWORD]", env = "ETCDCTL_USER", hide_env_values = true)]
    pub etcd_user: Option<String>,
    /// Maximum time to connect to an etcd endpoint, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub etcd_timeout: u64,
    #[command(flatten)]
    #[expect(missing_docs, reason = "documented at its type")]
    pub stored: StoredArgs,
}

/// How the API server stores its objects: the values of two API server flags.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "etcd")]
pub struct StoredArgs {
    /// Key prefix of the API server's objects: the value of the API server's flag `--etcd-prefix`
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub etcd_prefix: String,
    /// The API server's `--encryption-provider-config` file. You need this option if the API server encrypts objects that
    /// netsurgeon reads. netsurgeon keeps the keys only in memory
    #[arg(long, value_name = "FILE", env = "NETSURGEON_ENCRYPTION_CONFIG", hide_env_values = true)]
    pub encryption_config: Option<PathBuf>,
    /// Whether the store returns a value in its stored form if no key of the encryption configuration can decrypt it
    #[arg(skip)]
    is_lenient: bool,
}

/// What to read: a snapshot file or a live etcd.
#[derive(Debug, Clone, Default, Args)]
pub struct SourceArgs {
    /// Read this file: a snapshot from `etcdctl snapshot save`, or the file `member/snap/db` of a stopped etcd member
    #[arg(long, value_name = "FILE")]
    pub snapshot: Option<PathBuf>,
    /// Read all objects at this revision of etcd [default: the newest revision]
    #[arg(long, value_name = "REVISION", value_parser = clap::value_parser!(i64).range(1..))]
    pub at_revision: Option<i64>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "documented at its type")]
    pub etcd: EtcdArgs,
}

/// An open store, for reading.
pub struct Opened {
    /// The store.
    pub store: Arc<dyn ReadStore>,
    /// The layout of the API server's keys in the store.
    pub layout: Layout,
    /// The requested revision.
    pub at: Option<Revision>,
}

impl SourceArgs {
    /// Returns the options `--snapshot` and `--at-revision` that are given, each with a leading space, for a printed command.
    pub fn options(&self) -> String {
        let snapshot = self.snapshot.as_ref().map(|file| format!(" --snapshot {}", pasted(file)));
        let at = self.at_revision.map(|revision| format!(" --at-revision {revision}"));
        format!("{}{}", snapshot.unwrap_or_default(), at.unwrap_or_default())
    }

    /// Returns these options for a command that reads all objects and reports values that it cannot decrypt.
    #[must_use]
    pub fn lenient(&self) -> Self {
        let mut source = self.clone();
        source.etcd.stored.is_lenient = true;
        source
    }

    /// Opens the store. `scope` contains the key ranges that the caller will read. For a snapshot, only the keys in these ranges
    /// are indexed.
    pub async fn open(&self, context: &Context, scope: &[KeyRange]) -> Result<Opened, Failure> {
        let store: Arc<dyn ReadStore> = match &self.snapshot {
            Some(path) => open_snapshot(context, path, scope, &self.etcd.stored)?,
            None => self.connect().await?,
        };
        Ok(Opened { store, layout: self.etcd.layout(), at: self.at_revision.map(Revision) })
    }

    /// Opens the store, and reads all objects that contain a Service address. Also returns the name of the store.
    pub async fn survey(&self, context: &Context) -> Result<(Survey, String), Failure> {
        self.survey_annotated(context, None).await
    }

    /// Reads the same survey as [`Self::survey`] and, if `annotation` is given, also this annotation of every Service.
    pub async fn survey_annotated(
        &self,
        context: &Context,
        annotation: Option<&str>,
    ) -> Result<(Survey, String), Failure> {
        let layout = self.etcd.layout();
        let store = self.open_ahead(context, &layout.surveyed()).await?;
        let at = self.at_revision.map(Revision);
        let survey = Survey::read_annotated(store.as_ref(), &layout, at, annotation).await?;
        Ok((survey, store.describe()))
    }

    /// Reads the same survey as [`Self::survey`], and also returns the objects that unfinished operations own.
    pub async fn survey_beside(&self, context: &Context) -> Result<(Survey, Ours, String), Failure> {
        let layout = self.etcd.layout();
        let mut scope = layout.surveyed();
        scope.push(Journal::of_all_clusters());
        let store = self.open_ahead(context, &scope).await?;
        let survey = Survey::read(store.as_ref(), &layout, self.at_revision.map(Revision)).await?;
        let ours = match &survey.cluster_id {
            Some(cluster) => ours(context, store.as_ref(), cluster).await?,
            None => Ours::default(),
        };
        Ok((survey, ours, store.describe()))
    }

    /// Opens a store that is read once, from start to end.
    async fn open_ahead(&self, context: &Context, scope: &[KeyRange]) -> Result<Arc<dyn ReadStore>, Failure> {
        Ok(match &self.snapshot {
            // The last read of the survey verifies the checksum, before the survey is used.
            Some(path) => {
                let store = mention_checksum(context, SnapshotStore::open_ahead(path, scope)?);
                Arc::new(Sealed::new(store, self.etcd.stored.seal()?))
            }
            None => self.connect().await?,
        })
    }

    /// Connects to the live etcd.
    async fn connect(&self) -> Result<Arc<LiveEtcd>, Failure> {
        if !self.etcd.is_given() {
            return Err(nothing_to_read());
        }
        self.etcd.connect().await
    }
}

/// Returns the objects that unfinished operations of a cluster own. If a journal cannot be read, prints a warning.
async fn ours(context: &Context, store: &dyn ReadStore, cluster: &str) -> Result<Ours, Failure> {
    let mut ours = Ours::default();
    for operation in unfinished(store, cluster).await? {
        match open_operation(store, cluster, Some(&operation), None).await {
            Ok(ongoing) => {
                ours.add(ongoing.plan.work.ours());
            }
            Err(failure) => {
                let text = format!("operation `{operation}` is ignored: {}", failure.error);
                context.output.warn(&text);
            }
        }
    }
    Ok(ours)
}

/// Opens a snapshot file. Prints a note if the file has no checksum.
pub fn open_snapshot(
    context: &Context,
    path: &Path,
    scope: &[KeyRange],
    stored: &StoredArgs,
) -> Result<Arc<dyn ReadStore>, Failure> {
    let seal = stored.seal()?;
    Ok(Arc::new(Sealed::new(mention_checksum(context, SnapshotStore::open(path, scope)?), seal)))
}

fn mention_checksum(context: &Context, store: SnapshotStore) -> SnapshotStore {
    if !store.has_checksum() {
        context.output.note(&format!(
            "`{}` has no checksum (it is a raw database): a changed byte inside a value cannot be detected",
            store.path().display()
        ));
    }
    store
}

impl StoredArgs {
    /// Returns the layout of the API server's keys in etcd.
    pub fn layout(&self) -> Layout {
        Layout::new(&self.etcd_prefix)
    }

    /// Reads the encryption keys. Returns `None` if no encryption configuration is given.
    fn seal(&self) -> Result<Option<Arc<dyn Seal>>, Failure> {
        let Some(path) = &self.encryption_config else { return Ok(None) };
        let unusable = |failure: Failure| {
            failure
                .context(format!("cannot use the encryption configuration `{}`", path.display()))
                .hint("give the API server's `--encryption-provider-config` file; only root can read it")
        };
        let text = Zeroizing::new(std::fs::read_to_string(path).map_err(|error| unusable(error.into()))?);
        let keyring = Keyring::parse(&text, self.layout().prefix(), rand::fill);
        let seal: Arc<dyn Seal> =
            Arc::new(keyring.map_err(|error| unusable(Failure::new(ExitKind::Refused, error)))?);
        Ok(Some(if self.is_lenient { Arc::new(Lenient(seal)) } else { seal }))
    }
}

impl EtcdArgs {
    /// Returns the layout of the API server's keys in etcd.
    pub fn layout(&self) -> Layout {
        self.stored.layout()
    }

    /// Returns whether the arguments or kubeadm's files on this host specify an etcd.
    pub fn is_given(&self) -> bool {
        self.etcd_endpoints.iter().any(|text| !text.is_empty()) || Kubeadm::find(Path::new("/")).is_some()
    }

    /// Connects to the live etcd, to read and write.
    pub async fn connect(&self) -> Result<Arc<LiveEtcd>, Failure> {
        let (options, seal) = (self.resolve(Path::new("/"))?, self.stored.seal()?);
        Ok(Arc::new(Sealed::new(EtcdStore::connect(options).await?, seal)))
    }

    /// Completes the arguments with kubeadm's files on this host.
    fn resolve(&self, root: &Path) -> Result<EtcdOptions, Failure> {
        let mut options = EtcdOptions::new(self.etcd_endpoints.iter().filter(|text| !text.is_empty()));
        options.ca_cert.clone_from(&self.etcd_cacert);
        options.cert.clone_from(&self.etcd_cert);
        options.key.clone_from(&self.etcd_key);
        options.connect_timeout = Duration::from_secs(self.etcd_timeout);
        options.user = self.user(std::env::var("ETCDCTL_PASSWORD").ok())?;
        if options.endpoints.is_empty() {
            let kubeadm = Kubeadm::find(root).ok_or_else(no_etcd)?;
            options.endpoints.push(KUBEADM_ENDPOINT.to_string());
            if options.ca_cert.is_none() && options.cert.is_none() && options.key.is_none() {
                options.ca_cert = Some(kubeadm.ca_cert);
                (options.cert, options.key) = (Some(kubeadm.cert), Some(kubeadm.key));
            }
        }
        Ok(options)
    }

    /// Returns the name and the password of the etcd user, parsed as etcdctl parses them. The first colon splits `NAME:PASSWORD`.
    /// Without a colon, the password comes from `ETCDCTL_PASSWORD`.
    fn user(&self, password: Option<String>) -> Result<Option<(String, String)>, Failure> {
        let Some(user) = self.etcd_user.as_deref().filter(|user| !user.is_empty()) else { return Ok(None) };
        let split = match user.split_once(':') {
            Some((name, password)) => Some((name.to_string(), password.to_string())),
            None => password.map(|password| (user.to_string(), password)),
        };
        match split {
            Some(pair) => Ok(Some(pair)),
            None => Err(Failure::usage(format!("there is no password for etcd's user `{user}`"))
                .hint("set ETCDCTL_PASSWORD, or set ETCDCTL_USER to `NAME:PASSWORD`")),
        }
    }
}

/// The endpoint of kubeadm's stacked etcd (`GetLocalEtcdClientURL`, kubeadm v1.36).
const KUBEADM_ENDPOINT: &str = "https://127.0.0.1:2379";

/// The etcd certificates of a kubeadm control-plane host.
struct Kubeadm {
    ca_cert: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

impl Kubeadm {
    /// Finds the certificates. Prefers the API server's client certificate, because it has all permissions in etcd.
    fn find(root: &Path) -> Option<Self> {
        let pki = root.join("etc/kubernetes/pki");
        let ca_cert = pki.join("etcd/ca.crt");
        let pair = |name: &str| (pki.join(format!("{name}.crt")), pki.join(format!("{name}.key")));
        let pairs = [pair("apiserver-etcd-client"), pair("etcd/healthcheck-client")];
        let (cert, key) = pairs.into_iter().find(|(cert, key)| cert.exists() && key.exists())?;
        ca_cert.exists().then_some(Self { ca_cert, cert, key })
    }
}

/// The failure of a command that reads a snapshot or a live etcd, if neither is given.
fn nothing_to_read() -> Failure {
    Failure::usage("there is nothing to read: neither `--snapshot` nor `--etcd-endpoints` is given")
        .hint("for a file: `--snapshot FILE`; for a live etcd: `--etcd-endpoints URL`, or ETCDCTL_ENDPOINTS")
        .hint(ON_KUBEADM)
}

/// The failure of a command that needs a live etcd, if none is given or found.
fn no_etcd() -> Failure {
    Failure::usage("no etcd endpoint is given, and this host is not a kubeadm control-plane host with etcd")
        .hint("give its address: `--etcd-endpoints URL`, or set ETCDCTL_ENDPOINTS")
        .hint(ON_KUBEADM)
}

const ON_KUBEADM: &str = "on a kubeadm control-plane host, netsurgeon finds etcd automatically: run this command on such a host, as root";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_source_is_a_usage_error_with_hints() {
        let empty = tempfile::tempdir().unwrap();
        let failure = EtcdArgs::default().resolve(empty.path()).unwrap_err();
        assert_eq!(failure.kind, ExitKind::Usage);
        assert_eq!(failure.hints.len(), 2);
    }

    #[test]
    fn kubeadm_host_needs_no_flags() {
        let host = tempfile::tempdir().unwrap();
        let pki = host.path().join("etc/kubernetes/pki");
        std::fs::create_dir_all(pki.join("etcd")).unwrap();
        for name in ["etcd/ca.crt", "etcd/healthcheck-client.crt", "etcd/healthcheck-client.key"] {
            std::fs::write(pki.join(name), "").unwrap();
        }
        let options = EtcdArgs::default().resolve(host.path()).unwrap();
        assert_eq!(options.endpoints, [KUBEADM_ENDPOINT]);
        assert_eq!(options.cert, Some(pki.join("etcd/healthcheck-client.crt")));
        for name in ["apiserver-etcd-client.crt", "apiserver-etcd-client.key"] {
            std::fs::write(pki.join(name), "").unwrap();
        }
        let options = EtcdArgs::default().resolve(host.path()).unwrap();
        assert_eq!(options.key, Some(pki.join("apiserver-etcd-client.key")));
        let typed = EtcdArgs { etcd_endpoints: vec!["http://a:2379".into()], ..EtcdArgs::default() };
        let options = typed.resolve(host.path()).unwrap();
        assert_eq!((options.endpoints, options.ca_cert), (vec!["http://a:2379".to_string()], None));
    }

    #[test]
    fn etcd_user_is_parsed_as_by_etcdctl() {
        let user = |text: &str, password: Option<&str>| {
            let args = EtcdArgs { etcd_user: Some(text.into()), ..EtcdArgs::default() };
            args.user(password.map(String::from))
        };
        let pair = |name: &str, password: &str| Some((name.to_string(), password.to_string()));
        assert_eq!(user("root:a:b", None).unwrap(), pair("root", "a:b"));
        assert_eq!(user("root", Some("x")).unwrap(), pair("root", "x"));
        assert!(user("root", None).is_err());
    }
}
