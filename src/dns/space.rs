//! How much space in etcd the record of a cutover needs, and the maximum number of names that follows from it.

/// Bytes that one step writes to etcd if the steps of eight names run at a time. `tests/cluster/ledger.rs` measures them.
pub const BYTES_FOR_A_STEP: u64 = 4 * 1024;
/// Bytes that the record of one name writes to etcd, for a cutover with three shares and its rollback. A name has 6 steps. The
/// rollback undoes all steps of a name together, which is two more writes.
const BYTES_FOR_A_NAME: u64 = 8 * BYTES_FOR_A_STEP;

/// Maximum number of names of one cutover. etcd keeps all versions of a value until the API server compacts it, every five minutes.
/// With this number, all versions together need less than a quarter of etcd's default quota of 2 GiB.
pub const MOST_NAMES: usize = 15_000;

/// Returns the number of bytes that the record of a cutover writes to etcd, forward and back.
pub fn record_bytes(names: usize) -> u64 {
    u64::try_from(names).unwrap_or(u64::MAX).saturating_mul(BYTES_FOR_A_NAME)
}
