//! Prints messages while a progress bar is on the screen.

use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;

/// The bar on the screen. The program suspends the bar while it prints other output.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Suspends the bar, if there is one, and calls `print`.
pub(super) fn aside<T>(print: impl FnOnce() -> T) -> T {
    let bar = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// Shows a bar, or removes the current one.
pub(super) fn show(bar: Option<ProgressBar>) {
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = bar;
}
