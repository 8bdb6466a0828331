//! Reports a panic as a bug.

use super::log::MessageKind;
use super::output;

/// Installs the panic hook. `main` catches the panic and sets the exit status.
pub(super) fn install_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let what = panic.payload_as_str().unwrap_or("no message");
        let (error, hint) = (
            format!("netsurgeon stopped because of a bug: {what} ({place})"),
            "an operation that was under way can be resumed safely from its journal",
        );
        for (kind, text) in [(MessageKind::Error, error.as_str()), (MessageKind::Hint, hint)] {
            output::plain(kind, text);
        }
    }));
}
