//! The arguments that describe the target of a renumbering: the new range, pinned addresses, batches and holds.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;

use super::file::read;
use super::tiers::TierArgs;
use crate::ip::ServiceCidr;
use crate::renumber::hold::Hold;
use crate::renumber::{PlanOptions, kube_proxy};
use crate::session::Failure;

/// The new range, and how to move to it.
#[derive(Debug, Args)]
pub struct TargetArgs {
    /// The new Service range
    #[arg(long, value_name = "CIDR")]
    pub to: String,
    /// File with new addresses that you choose, one Service per line: `NAMESPACE/NAME ADDRESS`
    #[arg(long, value_name = "FILE")]
    pub pin: Option<PathBuf>,
    /// Maximum number of Services in a batch. The Services of a batch move together. Before and after the move of a batch,
    /// netsurgeon waits until every node has applied the changes
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub batch_size: u32,
    /// How to hold the old addresses. `external-ip`: each Service holds its old address as an external IP; the plan fails if a
    /// Service needs a shadow. `shadow`: for every Service, a second Service holds the old address [default: for each Service,
    /// `external-ip` if possible, otherwise `shadow`]
    #[arg(long, value_name = "HOLD", value_parser = parse_hold)]
    pub hold: Option<Hold>,
    /// Also move Services whose address the new range contains. Without this option, these Services keep their address, and
    /// netsurgeon writes nothing to them
    #[arg(long)]
    pub move_all: bool,
    /// Configuration file of kube-proxy, or a file that also has other documents, such as a configuration file of kubeadm. Give
    /// this file if netsurgeon cannot tell whether kube-proxy routes Services, and if kube-proxy routes them on every node
    #[arg(long, value_name = "FILE")]
    pub kube_proxy_config: Option<PathBuf>,
    /// Continue even if netsurgeon cannot tell whether every node can hold old addresses. Connections to old addresses can then
    /// fail
    #[arg(long)]
    pub accept_gap: bool,
}

fn parse_hold(text: &str) -> Result<Hold, String> {
    [Hold::ExternalIp, Hold::Shadow]
        .into_iter()
        .find(|hold| hold.to_string() == text)
        .ok_or_else(|| "give `external-ip` or `shadow`".to_string())
}

impl TargetArgs {
    /// Parses the range, and reads the files with pins, tiers and the kube-proxy configuration. Does not yet run the program that
    /// prints tiers.
    pub fn resolve(&self, tiers: &TierArgs) -> Result<PlanOptions, Failure> {
        let to: ServiceCidr = self.to.parse()?;
        let pins = match &self.pin {
            Some(path) => read_pins(path)?,
            None => BTreeMap::new(),
        };
        let batch_size = usize::try_from(self.batch_size).unwrap_or(50);
        let proxy_config = self.kube_proxy_config.as_deref().map(read_proxy_config).transpose()?;
        let tiers = tiers.resolve()?;
        Ok(PlanOptions {
            to,
            pins,
            batch_size,
            tiers,
            hold: self.hold,
            proxy_config,
            move_all: self.move_all,
            accept_gap: self.accept_gap,
        })
    }
}

fn read_proxy_config(path: &Path) -> Result<String, Failure> {
    let text = read(path)?;
    kube_proxy::check(&text).map_err(|reason| {
        Failure::usage(format!("`{}` is not a configuration of kube-proxy: {reason}", path.display()))
            .hint("on a kubeadm cluster: `kubectl -n kube-system get configmap kube-proxy -o jsonpath='{.data.config\\.conf}'` prints it")
    })?;
    Ok(text)
}

fn read_pins(path: &Path) -> Result<BTreeMap<String, IpAddr>, Failure> {
    let text = read(path)?;
    let mut pins = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (subject, address) = parse_pin(line).ok_or_else(|| {
            let place = format!("line {} of `{}`", index.saturating_add(1), path.display());
            Failure::usage(format!("{place} is not a pin: `{line}`"))
                .hint("write `NAMESPACE/NAME ADDRESS`, for example `shop/cart 10.200.0.42`")
        })?;
        if pins.insert(subject.clone(), address).is_some() {
            return Err(Failure::usage(format!("`{}` pins `{subject}` twice", path.display())));
        }
    }
    Ok(pins)
}

fn parse_pin(line: &str) -> Option<(String, IpAddr)> {
    let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let (subject, address) = (words.next()?, words.next()?);
    if words.next().is_some() || subject.split('/').filter(|part| !part.is_empty()).count() != 2 {
        return None;
    }
    Some((subject.to_string(), address.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_file_has_a_service_and_an_address_per_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            "# the cart\nshop/cart 10.200.0.42\n\nshop/pay,\t10.200.0.43 # by hand\n",
        )
        .unwrap();
        let pins = read_pins(file.path()).unwrap();
        assert_eq!(pins.len(), 2);
        assert_eq!(pins["shop/pay"].to_string(), "10.200.0.43");
        for bad in
            ["shop 10.0.0.1", "shop/cart", "shop/cart x", "a/b 10.0.0.1 c", "a/b 10.0.0.1\na/b 10.0.0.2"]
        {
            std::fs::write(file.path(), bad).unwrap();
            assert_eq!(read_pins(file.path()).unwrap_err().kind, super::super::ExitKind::Usage, "{bad}");
        }
    }
}
