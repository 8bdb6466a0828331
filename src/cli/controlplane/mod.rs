//! `netsurgeon controlplane`: shows and changes the Service range in the flags of API servers and controller managers, and
//! changes the address of the cluster DNS in the configuration of kubelets.

mod distribution;
mod file_change;
mod set_dns;
mod set_range;
mod show;
mod wait;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Context, Outcome};
use crate::controlplane::folder_of_manifests;
use crate::ip::{ServiceCidr, as_flag};
use crate::session::Failure;
use crate::words::pasted;

#[derive(Debug, Subcommand)]
pub enum ControlPlaneCommand {
    Show(show::ShowArgs),
    SetRange(set_range::SetRangeArgs),
    SetDns(set_dns::SetDnsArgs),
    Wait(wait::WaitArgs),
}

/// Runs the command.
pub async fn run(context: &Context, command: &ControlPlaneCommand) -> Result<Outcome, Failure> {
    match command {
        ControlPlaneCommand::Show(args) => show::run(context, args).await,
        ControlPlaneCommand::SetRange(args) => set_range::run(context, args),
        ControlPlaneCommand::SetDns(args) => set_dns::run(context, args),
        ControlPlaneCommand::Wait(args) => wait::run(context, args).await,
    }
}

/// The folder of static Pod manifests.
#[derive(Debug, Clone, Args)]
struct ManifestArgs {
    /// The folder of static Pod manifests [default: the folder of kubeadm, kOps or RKE2]
    #[arg(long, value_name = "FOLDER")]
    manifests: Option<PathBuf>,
}

impl ManifestArgs {
    /// Returns the folder, if there is one.
    fn folder(&self) -> Option<PathBuf> {
        self.manifests.clone().or_else(folder_of_manifests)
    }

    /// Returns the given option with a leading space, for a printed command.
    fn option(&self) -> String {
        self.manifests.as_ref().map(|folder| format!(" --manifests {}", pasted(folder))).unwrap_or_default()
    }
}

/// Parses one range, or one range for each address family. Returns the ranges in the format of the flag.
fn ranges(text: &str) -> Result<String, String> {
    let ranges = text.split(',').map(|range| range.trim().parse::<ServiceCidr>());
    let ranges: Vec<ServiceCidr> = ranges.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    match ranges.as_slice() {
        [_] => Ok(as_flag(&ranges)),
        [one, other] if one.network().is_ipv4() != other.network().is_ipv4() => Ok(as_flag(&ranges)),
        _ => {
            Err("give one range, or two ranges of different address families, separated by a comma"
                .to_string())
        }
    }
}
