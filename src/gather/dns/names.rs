//! The names that will point to the mirror, from the command line.

use std::path::{Path, PathBuf};

use crate::nameserver::{Key, canonical};
use crate::preflight::exposed::is_in;
use crate::session::Failure;

/// The names that will point to the mirror, and the servers of their zone.
#[derive(Debug, Clone)]
pub struct Names {
    /// Zone of the names.
    pub zone: String,
    /// Selected names. If empty, every host in the zone that an object of the cluster names.
    pub name: Vec<String>,
    /// The server that accepts updates of the zone, with or without a port.
    pub server: Option<String>,
    /// The file with the key that signs updates.
    pub tsig_key_file: Option<PathBuf>,
    /// A resolver that clients use, with or without a port.
    pub resolver: Option<String>,
}

impl Names {
    /// Validates the arguments as far as this needs no network. Returns the key that signs updates, if one is given.
    pub fn check(&self) -> Result<Option<Key>, Failure> {
        let key = self.tsig_key_file.as_deref().map(read_key).transpose()?;
        let zone = canonical(&self.zone);
        let Some(name) = self.name.iter().find(|name| !is_in(&zone, &canonical(name))) else {
            return Ok(key);
        };
        Err(Failure::usage(format!("`{name}` is not in the zone `{zone}`"))
            .hint("give the zone of this name: `--zone`"))
    }
}

fn read_key(path: &Path) -> Result<Key, Failure> {
    let doing = || format!("cannot use the key in `{}`", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| Failure::from(error).context(doing()))?;
    let text = zeroize::Zeroizing::new(text);
    Key::parse(&text).map_err(|error| {
        let hint = error.hint().unwrap_or_default();
        Failure::refused(error.to_string()).context(doing()).hint(hint)
    })
}
