//! Prints the messages of a session on the terminal, or as lines of a log.

use std::any::Any;

use serde_json::Value;
use tokio::task::JoinSet;

use super::log;
use super::output::Output;
use super::progress::{Progress, countdown};
use crate::operation::{Observer, StopSwitch};
use crate::session::progress::SharedProgress;
use crate::session::{Countdown, ExitKind, Failure, MessageKind, UserInterface};

impl UserInterface for Output {
    fn say(&self, said: MessageKind, text: &str, fields: &[(&str, Value)]) {
        Self::say(self, said, text, fields);
    }

    fn ask(&self, question: &str) -> Result<(), Failure> {
        Self::ask(self, question, false)
    }

    fn about(&self, name: &'static str, value: &str) {
        log::about(name, value);
    }

    fn countdown(&self) -> Countdown<'_> {
        countdown(self)
    }

    fn watch(&self, progress: SharedProgress) -> Box<dyn Observer + '_> {
        Box::new(Progress::new(self, progress))
    }

    fn listen(&self, switch: StopSwitch) -> Box<dyn Any + Send> {
        let mut task = JoinSet::new();
        task.spawn(listen(self.clone(), switch));
        Box::new(task)
    }
}

/// At the first signal, asks the operation to stop after its current steps. At the second signal, ends the process immediately.
/// The immediate end is also safe, because the journal contains every completed step.
#[expect(clippy::exit, reason = "a second signal asks to stop at once")]
async fn listen(output: Output, switch: StopSwitch) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    let mut asked = false;
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if asked {
            output.note("stopped at once; the journal has every completed step");
            std::process::exit(ExitKind::Paused.code().into());
        }
        asked = true;
        output.note("stopping after the current steps; send the signal again to stop at once");
        switch.ask();
    }
}
