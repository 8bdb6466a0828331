//! Versions of Kubernetes.

/// Returns the minor version and the patch level of a version such as `v1.36.3`. A suffix is ignored.
pub fn level(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix("v1.")?.splitn(2, '.');
    let minor = parts.next()?.parse().ok()?;
    let patch = parts.next()?;
    let end = patch.find(|c: char| !c.is_ascii_digit()).unwrap_or(patch.len());
    Some((minor, patch.get(..end)?.parse().ok()?))
}
