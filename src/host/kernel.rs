//! Checks which optional parts the running kernel has, without a request that makes the kernel load a module.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// An optional part of the kernel that answers over netlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelPart {
    /// nftables.
    Nftables,
    /// IP sets.
    IpSets,
    /// IPsec.
    Xfrm,
}

impl KernelPart {
    /// Name of the module, and a symbol that the part exports, also if it is built in.
    fn marks(self) -> (&'static str, &'static str) {
        match self {
            Self::Nftables => ("nf_tables", "nft_register_expr"),
            Self::IpSets => ("ip_set", "ip_set_type_register"),
            Self::Xfrm => ("xfrm_user", "xfrm_add_sa"),
        }
    }

    /// Returns the name of the module, for people.
    pub fn module(self) -> &'static str {
        self.marks().0
    }

    /// Returns whether the kernel has this part now: loaded as a module, or built in.
    pub fn is_loaded(self) -> io::Result<bool> {
        let (module, symbol) = self.marks();
        if Path::new("/sys/module").join(module).exists() {
            return Ok(true);
        }
        // Folders of modules that are built in exist only if the module has parameters. Symbols show the others.
        let symbols = File::open("/proc/kallsyms").map_err(|error| {
            io::Error::new(error.kind(), format!("whether `{module}` is loaded: `/proc/kallsyms`: {error}"))
        })?;
        has_symbol(BufReader::new(symbols), symbol)
    }
}

fn has_symbol(mut lines: impl BufRead, symbol: &str) -> io::Result<bool> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(false);
        }
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        if words.nth(2) == Some(symbol.as_bytes()) {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_symbols_are_found() {
        let lines = "0000000000000000 T nft_register_expr_x\n0 T nft_register_expr\t[nf_tables]\n";
        assert!(has_symbol(lines.as_bytes(), "nft_register_expr").unwrap());
        assert!(!has_symbol(lines.as_bytes(), "nft_register").unwrap());
        assert!(!has_symbol(&b""[..], "nft_register_expr").unwrap());
    }
}
