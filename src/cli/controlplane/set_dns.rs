//! `netsurgeon controlplane set-dns`: changes the address of the cluster DNS in this host's kubelet configuration.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;

use super::distribution;
use super::file_change::{ChangedFile, ConsentArgs, Words, change};
use crate::cli::file::at;
use crate::cli::{Context, Outcome};
use crate::ip::is_link_local;
use crate::session::Failure;
use crate::wire::yaml::{Part, Yaml};
use crate::words::pasted;

/// The kubelet's configuration file on a kubeadm host (`KubeletConfigurationFileName`, `cmd/kubeadm/app/constants`, v1.36.3).
const CONFIG: &str = "/var/lib/kubelet/config.yaml";
const KEY: [&str; 1] = ["clusterDNS"];

/// Change the address of the cluster DNS in this host's kubelet configuration
///
/// Changes `clusterDNS`. All other bytes of the file stay the same, and the command keeps the old file next to the new file. The
/// change takes effect when you restart the kubelet. After the restart, only new Pods get the new address. Run this on every node
/// while both the old and the new address answer. If kubelets are configured elsewhere (K3s, RKE2, k0s, MicroK8s, Talos, kOps), the
/// command changes nothing, and prints what to change there.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  netsurgeon controlplane set-dns --to 10.200.0.10 --dry-run
  netsurgeon controlplane set-dns --to 10.200.0.10 --yes \\
      && systemctl restart kubelet
  # if the file has several addresses
  netsurgeon controlplane set-dns --from fd00:10:96::a --to fd00:10:200::a")]
pub struct SetDnsArgs {
    /// The new address
    #[arg(long, value_name = "ADDRESS")]
    to: IpAddr,
    /// The old address [default: the file's only address of the same address family as `--to`]
    #[arg(long, value_name = "ADDRESS")]
    from: Option<IpAddr>,
    /// The kubelet's configuration file
    #[arg(long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    #[command(flatten)]
    consent: ConsentArgs,
}

/// Runs the command.
pub(super) fn run(context: &Context, args: &SetDnsArgs) -> Result<Outcome, Failure> {
    let to = args.to.to_string();
    distribution::refuse_generated_kubelet_file(&args.config, args.config == Path::new(CONFIG), &to)?;
    let file = args.changed().map_err(|failure| distribution::dns(failure, &to))?;
    let before = file.as_ref().map(|file| file.before.clone()).unwrap_or_default();
    let config = match args.config.as_path() {
        config if config == Path::new(CONFIG) => String::new(),
        config => format!(" --config {}", pasted(config)),
    };
    let words = Words {
        already: format!("{} already has `{to}`", args.config.display()),
        question: "Replace this file?",
        next: format!(
            "the kubelet uses the new address after a restart: `systemctl restart kubelet`\n\
             to undo: `netsurgeon controlplane set-dns --from {to} --to {before}{config}`"
        ),
    };
    change(context, &args.consent, file.into_iter().collect(), None, &words)
}

impl SetDnsArgs {
    /// Returns the changed file; `None` if the file already has the new address.
    fn changed(&self) -> Result<Option<ChangedFile>, Failure> {
        let file = &self.config;
        let old = std::fs::read_to_string(&self.config).map_err(at(file))?;
        let yaml = Yaml::parse(&old).map_err(at(file))?;
        let Some(before) = self.before(&yaml)? else { return Ok(None) };
        let after = self.to.to_string();
        match yaml.with_part(&KEY, &before, &after).map_err(at(file))? {
            Part::Changed(new) => {
                let file = file.clone();
                Ok(Some(ChangedFile { file, component: "kubelet", before, after, kept: None, old, new }))
            }
            Part::There | Part::Other(_) => Ok(None),
        }
    }

    /// Returns the address to replace, in the notation of the file; `None` if the file already has the new address.
    fn before(&self, yaml: &Yaml<'_>) -> Result<Option<String>, Failure> {
        let path = Path::display(&self.config);
        let parts = yaml.at(&KEY).map(|node| yaml.parts(node)).unwrap_or_default();
        let there: Vec<(IpAddr, &str)> =
            parts.into_iter().filter_map(|(_, part)| Some((part.parse().ok()?, part))).collect();
        let all = there.iter().map(|(_, part)| format!("`{part}`")).collect::<Vec<_>>().join(", ");
        let is_there = there.iter().any(|(address, _)| *address == self.to);
        let old: Vec<&str> =
            there.iter().filter(|(address, _)| self.is_old(*address)).map(|(_, part)| *part).collect();
        match (old.as_slice(), is_there, self.from) {
            ([], true, _) => Ok(None),
            ([part], false, _) => Ok(Some((*part).to_string())),
            (_, true, _) => Err(Failure::refused(format!("`{path}` has the new address and an old one: {all}"))
                .hint("remove the old address from the file by hand")),
            (..) if there.is_empty() => Err(Failure::refused(format!("`{path}` has no `clusterDNS`"))),
            ([], _, Some(from)) => Err(Failure::refused(format!("`{path}` has {all}, not `{from}`"))),
            (..) => Err(Failure::usage(format!("cannot tell which address of `clusterDNS` in `{path}` is the old one: {all}"))
                .hint("give the old address with `--from`; a link-local address belongs to a DNS cache on the node and can stay")),
        }
    }

    /// Returns whether to replace an address. A link-local address belongs to a DNS cache on the node (NodeLocal DNSCache), so it
    /// is replaced only if `--from` selects it.
    fn is_old(&self, address: IpAddr) -> bool {
        match self.from {
            Some(from) => address == from,
            None => address.is_ipv4() == self.to.is_ipv4() && address != self.to && !is_link_local(&address),
        }
    }
}
