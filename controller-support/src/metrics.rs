//! Metrics of every controller, in OpenMetrics' text form.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Which controller, and how a reconcile ended: `ok` or the label of its error.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ReconcileLabels {
    /// Name of the controller.
    pub controller: &'static str,
    /// `ok`, or [`crate::Error::label`].
    pub result: &'static str,
}

/// Which controller.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ControllerLabels {
    /// Name of the controller.
    pub controller: &'static str,
}

/// The metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    /// Finished reconciles.
    pub reconciles: Family<ReconcileLabels, Counter>,
    /// Seconds that a reconcile took.
    pub seconds: Family<ControllerLabels, Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("etcdadm_provider");
        let reconciles = Family::default();
        let seconds = Family::<ControllerLabels, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.001, 4.0, 8))
        });
        registry.register("reconciles", "Finished reconciles by result", reconciles.clone());
        registry.register("reconcile_seconds", "Duration of reconciles in seconds", seconds.clone());
        Self { registry: Mutex::new(registry), reconciles, seconds }
    }
}

impl Metrics {
    /// Adds metrics of one controller to the process's registry.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// All metrics as text.
    ///
    /// # Errors
    /// Only if the buffer cannot grow.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(text)
    }
}
