//! Finds the address of the API and the credentials. The source is a kubeconfig as for kubectl, the service account of a Pod, or
//! kubeadm's file on a control-plane host.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::ClusterError;
use super::chain::chain;

/// Total timeout of a request, retries included. Requests usually take milliseconds. The API server's own timeout is 60 s
/// (`--request-timeout`).
const TIMEOUT: Duration = Duration::from_secs(30);

/// kubeadm's kubeconfig for administrators (`kubeadmconstants.AdminKubeConfigFileName`, v1.36.3).
const KUBEADM: &str = "/etc/kubernetes/admin.conf";

/// Name of a Pod's configuration in messages.
pub(super) const SERVICE_ACCOUNT: &str = "the Pod's service account";

/// How to reach the API.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// A kubeconfig file. If it is not given, netsurgeon uses the first source that exists: the files in `KUBECONFIG`,
    /// `~/.kube/config`, the service account of the Pod that runs netsurgeon, `/etc/kubernetes/admin.conf`.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; `None` for the current context.
    pub context: Option<String>,
    /// Timeout of a request, retries included.
    pub timeout: Duration,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { kubeconfig: None, context: None, timeout: TIMEOUT }
    }
}

/// The source of the API's address and the credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    /// The files that `KUBECONFIG` lists, merged.
    Environment,
    ServiceAccount,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "kubeconfig `{}`", path.display()),
            Self::Environment => f.write_str("the kubeconfig in KUBECONFIG"),
            Self::ServiceAccount => f.write_str(SERVICE_ACCOUNT),
        }
    }
}

/// The sources that exist on this machine.
struct Surroundings {
    /// Whether `KUBECONFIG` is set and not empty.
    variable: bool,
    home: Option<PathBuf>,
    /// Whether netsurgeon runs in a Pod.
    pod: bool,
    kubeadm: PathBuf,
}

impl Surroundings {
    fn present() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            variable: set("KUBECONFIG").is_some(),
            home: set("HOME").map(|home| Path::new(&home).join(".kube/config")),
            pod: set("KUBERNETES_SERVICE_HOST").is_some(),
            kubeadm: KUBEADM.into(),
        }
    }

    fn source(&self, named: Option<&Path>) -> Option<Source> {
        let home = self.home.as_ref().filter(|path| path.exists());
        match named {
            Some(path) => Some(Source::File(path.into())),
            None if self.variable => Some(Source::Environment),
            None if home.is_some() => home.cloned().map(Source::File),
            None if self.pod => Some(Source::ServiceAccount),
            None => self.kubeadm.exists().then(|| Source::File(self.kubeadm.clone())),
        }
    }
}

impl ClusterOptions {
    /// Finds the configuration and reads it.
    pub(super) async fn config(&self) -> Result<Config, ClusterError> {
        let source = Surroundings::present().source(self.kubeconfig.as_deref());
        let source = source.ok_or(ClusterError::NoConfiguration)?;
        let unusable = |error: &(dyn std::error::Error + 'static)| ClusterError::Configuration {
            what: source.to_string(),
            reason: chain(error),
        };
        let kubeconfig = match &source {
            Source::ServiceAccount => return Config::incluster().map_err(|error| unusable(&error)),
            Source::File(path) => Kubeconfig::read_from(path),
            Source::Environment => Kubeconfig::read(),
        };
        let kubeconfig = kubeconfig.map_err(|error| ClusterError::Configuration {
            what: source.to_string(),
            reason: without_text(&error),
        })?;
        let proxied = names_a_proxy(&kubeconfig, self.context.as_deref());
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.map_err(|error| unusable(&error))?;
        // The client does not send credentials from a URL, but every message with the server's URL would show them.
        if config.cluster_url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            let reason =
                "its `server` has a user name or a password in the URL; Kubernetes does not support that"
                    .to_string();
            return Err(ClusterError::Configuration { what: source.to_string(), reason });
        }
        // netsurgeon connects to each API server at its own address inside the network. The outbound proxy of the environment
        // must not be used for these addresses.
        if !proxied {
            config.proxy_url = None;
        }
        Ok(config)
    }
}

/// Returns why a kubeconfig cannot be parsed, without the text around the error, because that text may be a token or a key.
fn without_text(error: &KubeconfigError) -> String {
    let KubeconfigError::Parse(parse) = error else { return chain(error) };
    let at = parse.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
    format!("it is not a kubeconfig: unexpected content{}", at.unwrap_or_default())
}

/// Returns whether the kubeconfig sets a proxy for the cluster.
fn names_a_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> bool {
    let context = context.or(kubeconfig.current_context.as_deref());
    let named = kubeconfig.contexts.iter().find(|named| Some(named.name.as_str()) == context);
    let cluster = named.and_then(|named| named.context.as_ref()).map(|context| context.cluster.as_str());
    let named = kubeconfig.clusters.iter().find(|named| Some(named.name.as_str()) == cluster);
    let proxy = named.and_then(|named| named.cluster.as_ref()).and_then(|cluster| cluster.proxy_url.as_ref());
    proxy.is_some_and(|url| !url.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_existing_configuration_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let (home, kubeadm) = (folder.path().join("config"), folder.path().join("admin.conf"));
        let found = |variable, pod, named: Option<&str>| {
            let around = Surroundings { variable, home: Some(home.clone()), pod, kubeadm: kubeadm.clone() };
            around.source(named.map(Path::new))
        };
        assert_eq!(found(false, false, None), None);
        std::fs::write(&kubeadm, "").unwrap();
        assert_eq!(found(false, false, None), Some(Source::File(kubeadm.clone())));
        assert_eq!(found(false, true, None), Some(Source::ServiceAccount));
        std::fs::write(&home, "").unwrap();
        assert_eq!(found(false, true, None), Some(Source::File(home.clone())));
        assert_eq!(found(true, true, None), Some(Source::Environment));
        assert_eq!(found(true, true, Some("a")), Some(Source::File("a".into())));
    }

    const KUBECONFIG: &str = "
current-context: one
contexts: [{name: one, context: {cluster: one}}, {name: two, context: {cluster: two}}]
clusters: [{name: one, cluster: {server: 'https://a'}},
           {name: two, cluster: {server: 'https://b', proxy-url: 'socks5://c:1080'}}]
";

    async fn config(text: &str, context: Option<&str>) -> Result<Config, ClusterError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let context = context.map(str::to_string);
        let kubeconfig = Some(file.path().to_path_buf());
        ClusterOptions { kubeconfig, context, ..ClusterOptions::default() }.config().await
    }

    #[tokio::test]
    async fn context_is_selected_with_its_proxy() {
        let one = config(KUBECONFIG, None).await.unwrap();
        assert_eq!((one.cluster_url.to_string().as_str(), one.proxy_url), ("https://a/", None));
        let two = config(KUBECONFIG, Some("two")).await.unwrap();
        assert_eq!(two.proxy_url.unwrap().to_string(), "socks5://c:1080/");
    }

    /// The YAML parser shows the lines around an error.
    #[tokio::test]
    async fn errors_never_contain_a_token() {
        let user = "users: [{name: one, user: {token: 'horse-battery'}}]\n";
        for text in [
            format!("{user}clusters: 7\n"),
            format!("{user}clusters: [{{name: one, cluster: {{server: [1]}}}}]\n"),
            format!("{KUBECONFIG}{user}  broken\n: x"),
            "users: [{name: one, user: {token: [horse-battery]}}]".to_string(),
            "users: [{name: one, user: horse-battery}]".to_string(),
            "horse-battery".to_string(),
        ] {
            let error = config(&text, None).await.unwrap_err();
            assert!(!error.to_string().contains("horse"), "{error}");
            assert!(error.to_string().contains("kubeconfig"), "{error}");
        }
    }

    #[tokio::test]
    async fn unusable_configuration_is_named() {
        for (text, context, words) in [
            (KUBECONFIG, Some("three"), "three"),
            ("clusters: 7", None, "kubeconfig"),
            ("{}", None, "current context"),
        ] {
            let error = config(text, context).await.unwrap_err();
            assert!(matches!(error, ClusterError::Configuration { .. }), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        let kubeconfig = Some("/nonexistent/file".into());
        let error = ClusterOptions { kubeconfig, ..ClusterOptions::default() }.config().await.unwrap_err();
        assert!(error.to_string().contains("/nonexistent/file"), "{error}");
    }
}
