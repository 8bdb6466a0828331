//! The `netsurgeon` binary: parse, run, exit.

/// A rehearsal of a large cluster allocates and frees millions of values of a few kilobytes. glibc's allocator
/// searches them longer and longer: with it, a Service of 50,000 cost 1.5 times as much as one of 10,000.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    netsurgeon::cli::main()
}
