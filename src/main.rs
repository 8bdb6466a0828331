//! The `netsurgeon` binary: parse, run, exit.

fn main() -> std::process::ExitCode {
    netsurgeon::cli::main()
}
