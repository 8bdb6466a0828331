//! How a panic reads: as what it is, a bug.

use super::log::Kind as Said;
use super::output;

/// Makes a panic read as what it is. The exit status is set by `main`, which catches it.
pub(super) fn install_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let what = panic.payload_as_str().unwrap_or("no message");
        let (error, hint) = (
            format!("netsurgeon has a bug and stops here: {what} ({place})"),
            "an operation that was under way is safe to resume; its journal is in etcd",
        );
        for (kind, text) in [(Said::Error, error.as_str()), (Said::Hint, hint)] {
            output::plain(kind, text);
        }
    }));
}
