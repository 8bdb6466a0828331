//! How much space in etcd the record of a cutover needs, and the maximum number of names that follows from it.

/// Bytes that the record of one name writes to etcd, for a cutover with three shares and its rollback. Each step is recorded twice,
/// and each write replaces a ConfigMap with up to 64 records (`operation::ledger::cluster`). Measured: about 5 KB for each step
/// (`tests/cluster/ledger.rs`), 6 steps for each name, forward and back.
const BYTES_FOR_A_NAME: u64 = 64 * 1024;

/// Maximum number of names of one cutover. etcd keeps all versions of a value until the API server compacts it, every five minutes.
/// With this number, all versions together need about a sixth of etcd's default quota of 2 GiB.
pub const MOST_NAMES: usize = 5000;

/// Returns the number of bytes that the record of a cutover writes to etcd, forward and back.
pub fn record_bytes(names: usize) -> u64 {
    u64::try_from(names).unwrap_or(u64::MAX).saturating_mul(BYTES_FOR_A_NAME)
}
