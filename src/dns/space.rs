//! How much space in etcd the record of a cutover needs, and the maximum number of names that follows from it.

/// Bytes that the record of one name writes to etcd, for a cutover with three shares and its rollback. This is an estimate: a write
/// replaces a ConfigMap with 32 records of 250 bytes on average (`operation::ledger::cluster`), and about four steps share a write.
/// A name has 6 steps, and each step is recorded twice, forward and back. `tests/cluster/ledger.rs` prints the measured number.
const BYTES_FOR_A_NAME: u64 = 64 * 1024;

/// Maximum number of names of one cutover. etcd keeps all versions of a value until the API server compacts it, every five minutes.
/// With this number, all versions together need about a sixth of etcd's default quota of 2 GiB, if the estimate is right.
pub const MOST_NAMES: usize = 5000;

/// Returns the number of bytes that the record of a cutover writes to etcd, forward and back.
pub fn record_bytes(names: usize) -> u64 {
    u64::try_from(names).unwrap_or(u64::MAX).saturating_mul(BYTES_FOR_A_NAME)
}
