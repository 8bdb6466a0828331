//! Prints messages while a progress bar is on the screen.

use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;

/// The bar on the screen. The program suspends the bar while it prints other output.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Calls `print`. If a bar is on the screen, suspends it during the call.
pub(super) fn aside<T>(print: impl FnOnce() -> T) -> T {
    let bar = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// Records the bar that is on the screen; `None` if there is no bar.
pub(super) fn show(bar: Option<ProgressBar>) {
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = bar;
}
