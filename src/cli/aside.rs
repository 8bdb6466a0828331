//! Printing while a progress bar is on the screen.

use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;

/// The bar on the screen, which everything else that is printed must go around.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Prints something while no bar is on the screen.
pub(super) fn aside<T>(print: impl FnOnce() -> T) -> T {
    let bar = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// Puts a bar on the screen, or takes the one that is there away.
pub(super) fn show(bar: Option<ProgressBar>) {
    *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = bar;
}
