//! A real containerd on a host, with the runc of Debian and the CNI plug-ins of the rig.

use std::time::Duration;

use tokio::net::UnixStream;

use super::image::{PAUSE, archive};
use super::machine::{HostProcess, Machine};
use super::programs::{cni_plugins, containerd};

/// Its socket on the host.
pub const SOCKET: &str = "/run/containerd/containerd.sock";

/// How long it may take until it serves requests; less than a second on an idle machine.
const STARTUP: Duration = Duration::from_mins(1);

/// Where its configuration is on the host.
const CONFIG: &str = "/etc/containerd.toml";

/// Writes the configuration and starts containerd for the first time, with the images of the rig.
pub async fn install(host: &Machine) -> HostProcess {
    std::fs::write(host.path(CONFIG), config()).expect("the host's files can be written");
    let process = start(host).await;
    let archive = archive().display().to_string();
    host.run(
        &containerd("ctr").display().to_string(),
        &["--namespace", "k8s.io", "images", "import", &archive],
    );
    process
}

/// Starts containerd, and waits until it serves requests.
pub async fn start(host: &Machine) -> HostProcess {
    let arguments = [format!("--config={CONFIG}")];
    let mut process = host.start_process("containerd", &containerd("containerd"), &arguments);
    let socket = host.path(SOCKET);
    let probe = async || UnixStream::connect(&socket).await.map(drop).map_err(|error| error.to_string());
    let ready = process.ready("containerd serves requests", STARTUP, probe).await;
    ready.unwrap_or_else(|message| panic!("{message}"));
    process
}

/// `restrict_oom_score_adj`: a container must not ask for a better score than containerd has, which needs a permission that root
/// lacks in some virtual machines.
fn config() -> String {
    format!(
        "version = 4
disabled_plugins = ['io.containerd.nri.v1.nri']

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE}'

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
disable_apparmor = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['/opt/cni/bin', '{}']
conf_dir = '/etc/cni/net.d'
",
        cni_plugins().display()
    )
}
