//! A machine whose clock is wrong: a program that sees the wall clock shifted, and the monotonic clock as it is.

use std::process::Command;

use super::workspace::Workspace;

/// Replaces a function of the C library in the program.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *to) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, to);
    if (code == 0 && id == CLOCK_REALTIME) to->tv_sec += atol(getenv("SHIFTED_BY"));
    return code;
}
"#;

/// Lets a program see the wall clock shifted by so many seconds.
pub fn shift(command: &mut Command, workspace: &Workspace, seconds: i64) {
    let source = workspace.write("clock.c", LIBRARY);
    let library = workspace.join("clock.so");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.expect("a C compiler").success());
    command.env("LD_PRELOAD", library).env("SHIFTED_BY", seconds.to_string());
}
