//! `netsurgeon ip`: calculates addresses of Service ranges, for scripts.

use std::collections::HashSet;
use std::net::IpAddr;

use clap::Subcommand;
use serde::Serialize;

use super::output::table;
use super::{Context, Outcome};
use crate::ip::ServiceCidr;
use crate::ip::remap::{Rank, Wanted, remap};
use crate::session::Failure;

#[derive(Debug, Subcommand)]
pub enum IpCommand {
    /// Print the first address of a range, which is the address of the Service `default/kubernetes`
    ///
    /// The API server's certificate must cover this address.
    #[command(after_long_help = "Example:\n  netsurgeon ip first 10.96.0.0/16    # 10.96.0.1")]
    First {
        /// The Service range
        #[arg(value_name = "CIDR")]
        range: ServiceCidr,
    },
    /// Print the address at an offset from the network address
    #[command(
        after_long_help = "Example:\n  netsurgeon ip nth 10.96.0.0/16 10    # 10.96.0.10: the usual cluster DNS"
    )]
    Nth {
        /// The Service range
        #[arg(value_name = "CIDR")]
        range: ServiceCidr,
        /// The offset from the network address
        #[arg(value_name = "N")]
        offset: u128,
    },
    /// Print the new address of each given address in another range
    ///
    /// The new address has the same offset from the start of the range, if the new range is large enough. Otherwise, the new
    /// address is another free address. If the old address is in the static band (the low end of a range), this free address is
    /// also in the static band, if possible. A renumbering uses the same rules. In addition, a renumbering uses no address that
    /// is already allocated, and gives the first address to `default/kubernetes`.
    #[command(after_long_help = "\
Example:
  netsurgeon ip map --from 10.96.0.0/16 --to 10.200.0.0/20 10.96.0.10 10.96.77.3")]
    Map {
        /// The range that contains the addresses
        #[arg(long, value_name = "CIDR")]
        from: ServiceCidr,
        /// The range for the new addresses
        #[arg(long, value_name = "CIDR")]
        to: ServiceCidr,
        /// The old addresses
        #[arg(value_name = "ADDRESS", required = true)]
        addresses: Vec<IpAddr>,
    },
}

#[derive(Serialize)]
struct AddressOutput {
    version: u8,
    range: ServiceCidr,
    address: IpAddr,
}

#[derive(Serialize)]
struct Mapping {
    version: u8,
    from: ServiceCidr,
    to: ServiceCidr,
    addresses: Vec<Pair>,
}

#[derive(Serialize)]
struct Pair {
    old: IpAddr,
    new: IpAddr,
}

/// Runs the command.
pub fn run(context: &Context, command: &IpCommand) -> Result<Outcome, Failure> {
    match command {
        IpCommand::First { range } => nth(context, range, 1)?,
        IpCommand::Nth { range, offset } => nth(context, range, *offset)?,
        IpCommand::Map { from, to, addresses } => map(context, *from, *to, addresses)?,
    }
    Ok(Outcome::Done)
}

fn nth(context: &Context, range: &ServiceCidr, offset: u128) -> Result<(), Failure> {
    let address = range.nth(offset).ok_or_else(|| {
        Failure::refused(format!(
            "range `{range}` has no address at offset {offset} from `{}`",
            range.network()
        ))
        .hint(format!("the highest offset is {}", range.size().saturating_sub(1)))
    })?;
    let value = AddressOutput { version: 1, range: *range, address };
    context.output.data(&value, |_| address.to_string())
}

fn map(context: &Context, from: ServiceCidr, to: ServiceCidr, addresses: &[IpAddr]) -> Result<(), Failure> {
    let mut wanted = Vec::new();
    let mut seen = HashSet::new();
    for address in addresses {
        if !from.contains(*address) {
            return Err(Failure::refused(format!("address `{address}` is not in `{from}`"))
                .hint("give the range of this address with `--from`"));
        }
        if seen.insert(*address) {
            wanted.push(Wanted { old: *address, old_range: Some(from), rank: Rank::Ordinary, pin: None });
        }
    }
    let new = remap(&to, to.capacity(), &HashSet::new(), &wanted)?;
    let pairs = wanted.iter().zip(new).map(|(wish, new)| Pair { old: wish.old, new }).collect();
    let value = Mapping { version: 1, from, to, addresses: pairs };
    context.output.data(&value, |_| {
        let rows = value.addresses.iter().map(|pair| [pair.old.to_string(), pair.new.to_string()]);
        table(["OLD", "NEW"], rows)
    })
}
