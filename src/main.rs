//! The `netsurgeon` binary: parse, run, exit.

fn main() {}
