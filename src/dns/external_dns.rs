//! The ownership records of ExternalDNS. These TXT records name the owner of another record, so that other instances of
//! ExternalDNS do not change that record.
//!
//! The format is defined in `registry/txt` and `endpoint/labels.go` of ExternalDNS v0.23.

use crate::nameserver::{quoted_text, text};

/// The owner that netsurgeon records while it changes a name.
pub const HOLDER: &str = "netsurgeon";

const HERITAGE: &str = "heritage=external-dns";
const OWNER: &str = "external-dns/owner=";
const RESOURCE: &str = "external-dns/resource=";

/// Returns the object in an ownership record, for example `ingress/shop/web`; `None` for a text without an object. `data` is the
/// data of a TXT record.
pub fn resource(data: &str) -> Option<String> {
    text(data)?.split(',').find_map(|part| part.strip_prefix(RESOURCE)).map(str::to_string)
}

/// Returns the owner in an ownership record, for example `blue` in `heritage=external-dns,external-dns/owner=blue,…`; `None` for
/// other texts. `data` is the data of a TXT record.
pub fn owner(data: &str) -> Option<String> {
    let text = text(data)?;
    let mut parts = text.split(',');
    if parts.next() != Some(HERITAGE) {
        return None;
    }
    parts.find_map(|part| part.strip_prefix(OWNER)).map(str::to_string)
}

/// Returns an ownership record with another owner. The rest of the record stays the same. `data` is the data of a TXT record.
pub(super) fn with_owner(data: &str, owner: &str) -> String {
    let part = |part: &str| match part.strip_prefix(OWNER) {
        Some(_) => format!("{OWNER}{owner}"),
        None => part.to_string(),
    };
    let changed = text(data).unwrap_or_default().split(',').map(part).collect::<Vec<_>>().join(",");
    quoted_text(changed.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_is_replaced() {
        let of = |owner: &str| {
            format!(
                "\"heritage=external-dns,external-dns/owner={owner},external-dns/resource=ingress/default/web\""
            )
        };
        assert_eq!(owner(&of("blue")).as_deref(), Some("blue"));
        assert_eq!(resource(&of("blue")).as_deref(), Some("ingress/default/web"));
        assert_eq!(with_owner(&of("blue"), HOLDER), of("netsurgeon"));
        assert_eq!(with_owner(&of(HOLDER), "blue"), of("blue"));
        assert_eq!(owner("\"v=spf1 -all\""), None);
        // A long record has several strings, which can be divided anywhere.
        let divided = "\"heritage=external-dns,external-dns/ow\" \"ner=blue,external-dns/resource=ingress/default/web\"";
        assert_eq!(owner(divided).as_deref(), Some("blue"));
        assert_eq!(with_owner(divided, "green"), of("green"));
    }
}
