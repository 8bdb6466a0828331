//! What every session has, wherever its operations are recorded: the user interface, the settings, the gates and the metrics.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::failure::Failure;
use super::gates::Gates;
use super::lease::LeaseTerms;
use super::message_kind::MessageKind;
use super::metrics::{Figures, Metrics, Writes};
use super::ui::Ui;

/// Default time after which the operation lease of a killed process expires.
pub(super) const LEASE: Duration = Duration::from_mins(1);

/// The settings for the operations of a session.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Settings for the operation lease.
    pub lease: LeaseTerms,
    /// Maximum number of subjects that are processed concurrently.
    pub parallel: usize,
    /// Maximum number of writes per second.
    pub rate: Option<NonZeroU32>,
    /// Maximum number of skipped subjects. If one more subject must be skipped, the operation stops.
    pub max_failures: usize,
    /// Whether to answer every question with yes.
    pub agreed: bool,
    /// Names of the manual steps that are confirmed as complete.
    pub confirm: Vec<String>,
    /// Listen address for `GET /metrics`, such as `127.0.0.1:9464`.
    pub metrics: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: LeaseTerms { take_over: false, ttl: LEASE },
            parallel: 8,
            rate: None,
            max_failures: 0,
            agreed: false,
            confirm: Vec::new(),
            metrics: None,
        }
    }
}

/// The part of a session that does not depend on the ledger.
pub struct SessionBase {
    /// Reports to the user, and asks questions.
    pub ui: Ui,
    /// The uid of the namespace `kube-system`.
    pub id: String,
    /// Settings of this session.
    pub settings: Settings,
    metrics: Option<Metrics>,
    /// The gates between batches.
    pub(super) gates: Gates,
}

impl SessionBase {
    /// Starts a session for the cluster with this uid.
    pub(super) async fn open(ui: Ui, id: String, settings: Settings) -> Result<Self, Failure> {
        let metrics = Metrics::listen_if(settings.metrics.as_deref()).await?;
        Ok(Self { ui, id, settings, metrics, gates: Gates::default() })
    }

    /// Adds gates between batches.
    pub(super) fn with_gates(self, gates: Gates) -> Self {
        Self { gates, ..self }
    }

    /// Returns the options for gates that the next command must repeat, each with a leading space.
    pub fn gate_options(&self) -> &str {
        &self.gates.repeated
    }

    /// Asks a question, unless the user has already answered every question with yes.
    pub fn ask(&self, question: &str) -> Result<(), Failure> {
        if self.settings.agreed { Ok(()) } else { self.ui.ask(question) }
    }

    /// Exposes the given metrics from now on, if there is a listener.
    pub fn show(&self, figures: impl Figures + 'static) {
        if let Some(metrics) = &self.metrics {
            show(metrics, &self.ui, figures);
        }
    }

    /// Returns the counter of writes.
    pub(super) fn writes(&self) -> Writes {
        self.metrics.as_ref().map(Metrics::writes).unwrap_or_default()
    }
}

/// Exposes the given metrics from now on, and reports the URL.
pub fn show(metrics: &Metrics, ui: &Ui, figures: impl Figures + 'static) {
    metrics.show(Arc::new(figures));
    let url = metrics.url();
    ui.say(MessageKind::Note, &format!("metrics are at {url}"), &[("url", Value::from(url.as_str()))]);
}
