//! The `netsurgeon` binary: parse, run, exit.

/// A rehearsal of a large cluster allocates and frees millions of values of a few kilobytes. glibc's allocator searches longer
/// and longer for free memory. With it, the cost of each Service was 1.5 times as high with 50,000 Services as with 10,000.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    netsurgeon::cli::main()
}
