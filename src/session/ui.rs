//! The interface between a session and its user, for reports and questions. A terminal, a log and a library caller each have
//! their own implementation of [`UserInterface`].

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::failure::Failure;
use super::message_kind::MessageKind;
use super::progress::SharedProgress;
use crate::operation::{Observer, Silent, StopSwitch};

/// Prints or records what a session reports.
pub trait UserInterface: Send + Sync {
    /// Reports a text. A structured log also contains the fields.
    fn say(&self, said: MessageKind, text: &str, fields: &[(&str, Value)]);

    /// Asks whether to continue. Fails if the answer is no, or if no user can be asked.
    fn ask(&self, question: &str) -> Result<(), Failure> {
        Err(Failure::refused(format!("cannot ask for confirmation: {question}")))
    }

    /// Adds a field to every later line.
    fn about(&self, _name: &'static str, _value: &str) {}

    /// Returns a function that shows a wait with a known maximum duration.
    fn countdown(&self) -> Countdown<'_> {
        Box::new(|_, _| {})
    }

    /// Shows the progress of an operation, until the returned value is dropped.
    fn watch(&self, _progress: SharedProgress) -> Box<dyn Observer + '_> {
        Box::new(Silent)
    }

    /// Lets the user or the system stop the operation through the switch, until the returned value is dropped.
    fn listen(&self, _switch: StopSwitch) -> Box<dyn Any + Send> {
        Box::new(())
    }
}

/// A function that shows a wait with a known maximum duration. Its arguments are the maximum remaining time and the reason for
/// the wait.
pub type Countdown<'a> = Box<dyn FnMut(Duration, &str) + Send + 'a>;

/// The ui of a session: a shared implementation of [`UserInterface`].
#[derive(Clone)]
pub struct Ui(Arc<dyn UserInterface>);

impl Ui {
    /// Returns a ui that uses this implementation.
    pub fn new(talk: impl UserInterface + 'static) -> Self {
        Self(Arc::new(talk))
    }

    /// Reports additional information for the user.
    pub fn note(&self, text: &str) {
        self.say(MessageKind::Note, text, &[]);
    }

    /// Reports information that the user needs before continuing.
    pub fn warn(&self, text: &str) {
        self.say(MessageKind::Warning, text, &[]);
    }

    /// Reports the action that is running.
    pub fn progress(&self, text: &str) {
        self.say(MessageKind::Progress, text, &[]);
    }
}

impl std::ops::Deref for Ui {
    type Target = dyn UserInterface;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

/// A ui without output. Every question fails.
impl UserInterface for Silent {
    fn say(&self, _said: MessageKind, _text: &str, _fields: &[(&str, Value)]) {}
}
