//! The `netsurgeon` binary. All code is in the library.

/// The memory allocator of the program. A rehearsal of a large cluster allocates and frees millions of values with a few
/// kilobytes each, and glibc's allocator needs more and more time to find free memory. With glibc's allocator, the time per
/// Service was 1.5 times as long with 50,000 Services as with 10,000.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    netsurgeon::cli::main()
}
