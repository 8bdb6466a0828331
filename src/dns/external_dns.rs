//! The ownership records of ExternalDNS. These TXT records name the owner of another record, so that other instances of
//! ExternalDNS do not change that record.
//!
//! The format is defined in `registry/txt` and `endpoint/labels.go` of ExternalDNS v0.23.

/// The owner that netsurgeon records while it changes a name.
pub const HOLDER: &str = "netsurgeon";

const HERITAGE: &str = "heritage=external-dns";
const OWNER: &str = "external-dns/owner=";
const RESOURCE: &str = "external-dns/resource=";

/// Returns the object in an ownership record, for example `ingress/shop/web`; `None` for a text without an object.
pub fn resource(text: &str) -> Option<&str> {
    text.trim_matches('"').split(',').find_map(|part| part.strip_prefix(RESOURCE))
}

/// Returns the owner in an ownership record, for example `blue` in `heritage=external-dns,external-dns/owner=blue,…`; `None` for
/// other texts.
pub fn owner(text: &str) -> Option<&str> {
    let mut parts = text.trim_matches('"').split(',');
    if parts.next() != Some(HERITAGE) {
        return None;
    }
    parts.find_map(|part| part.strip_prefix(OWNER))
}

/// Returns an ownership record with another owner. The rest of the record stays the same.
pub(super) fn with_owner(text: &str, owner: &str) -> String {
    let part = |part: &str| match (part.strip_prefix(OWNER), part.ends_with('"')) {
        (Some(_), true) => format!("{OWNER}{owner}\""),
        (Some(_), false) => format!("{OWNER}{owner}"),
        (None, _) => part.to_string(),
    };
    text.split(',').map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_is_replaced() {
        let blue = "heritage=external-dns,external-dns/owner=blue,external-dns/resource=ingress/default/web";
        assert_eq!(owner(blue), Some("blue"));
        let held = with_owner(blue, HOLDER);
        assert_eq!(
            held,
            "heritage=external-dns,external-dns/owner=netsurgeon,external-dns/resource=ingress/default/web"
        );
        assert_eq!(with_owner(&held, "blue"), blue);
        assert_eq!(
            with_owner("\"heritage=external-dns,external-dns/owner=blue\"", "green"),
            "\"heritage=external-dns,external-dns/owner=green\""
        );
        assert_eq!(owner("v=spf1 -all"), None);
    }
}
