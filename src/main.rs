//! The `netsurgeon` binary: parse, run, exit.

/// A rehearsal of a large cluster takes and frees millions of values of a few kilobytes, among which glibc's
/// allocator searches ever longer: with it, a Service of 50,000 cost half as much again as one of 10,000.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    netsurgeon::cli::main()
}
