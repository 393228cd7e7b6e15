//! Metrics of every controller, in OpenMetrics' text form.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// The prefix of every metric's name.
const PREFIX: &str = "etcdadm_provider";

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

/// What a request to the API server was, and how it was answered.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct RequestLabels {
    /// Name of the controller, or [`crate::client::SHARED`].
    pub controller: &'static str,
    /// Kubernetes' verb, such as `patch`.
    pub verb: &'static str,
    /// HTTP status; 0 if no answer came.
    pub code: u16,
}

/// The metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    /// One registry for each part of the process, by its name.
    parts: Mutex<BTreeMap<&'static str, Registry>>,
    /// Finished reconciles.
    pub reconciles: Family<ReconcileLabels, Counter>,
    /// Seconds that a reconcile took.
    pub seconds: Family<ControllerLabels, Histogram>,
    /// Requests to the API server.
    pub requests: Family<RequestLabels, Counter>,
    /// 1 while this process may work: it holds the lease, or runs without one.
    pub lease_held: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let reconciles = Family::default();
        let seconds = Family::<ControllerLabels, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.001, 4.0, 8))
        });
        registry.register("reconciles", "Finished reconciles by result", reconciles.clone());
        registry.register("reconcile_seconds", "Duration of reconciles in seconds", seconds.clone());
        let requests = Family::default();
        registry.register("api_requests", "Requests to the API server by controller, verb and code", requests.clone());
        let lease_held = Gauge::default();
        registry.register("lease_held", "1 if this manager holds the lease or runs without one", lease_held.clone());
        let parts = Mutex::new(BTreeMap::from([("reconciles", registry)]));
        Self { parts, reconciles, seconds, requests, lease_held }
    }
}

impl Metrics {
    /// Sets the metrics of the part called `part`. They replace its earlier ones, such as those of a controller that
    /// has been started again.
    pub fn register(&self, part: &'static str, add: impl FnOnce(&mut Registry)) {
        let mut registry = Registry::with_prefix(PREFIX);
        add(&mut registry);
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(part, registry);
    }

    /// All metrics as text.
    ///
    /// # Errors
    /// Only if the buffer cannot grow.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        for registry in self.parts.lock().unwrap_or_else(PoisonError::into_inner).values() {
            encode_registry(&mut text, registry)?;
        }
        encode_eof(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_waits_for_the_lease_says_so() {
        let metrics = Metrics::default();
        let shows = |value: i64| metrics.text().unwrap().contains(&format!("\netcdadm_provider_lease_held {value}\n"));
        assert!(shows(0), "from the beginning: what is not there cannot be asked for");
        metrics.lease_held.set(1);
        assert!(shows(1));
    }

    #[test]
    fn a_part_that_starts_again_is_shown_once() {
        let metrics = Metrics::default();
        for value in [1, 2] {
            let gauge = Gauge::<i64>::default();
            gauge.set(value);
            metrics.register("part", |registry| registry.register("members", "Members", gauge));
        }
        let text = metrics.text().unwrap();
        assert!(
            text.contains("etcdadm_provider_members 2\n") && !text.contains("etcdadm_provider_members 1\n"),
            "{text}"
        );
        assert_eq!(text.matches("# HELP etcdadm_provider_members ").count(), 1);
        assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1);
    }
}
