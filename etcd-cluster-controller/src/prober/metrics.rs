//! Metrics of probes, for all clusters together: labels for each cluster would be thousands of series.

use crate::observation::probe::Outcome;
use controller_support::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use std::time::Duration;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// Counts and times probes.
pub(crate) struct ProbeMetrics {
    probes: Family<Labels, Counter>,
    seconds: Histogram,
}

impl ProbeMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let this = Self { probes: Family::default(), seconds: Histogram::new(exponential_buckets(0.001, 3.0, 9)) };
        metrics.register("probes", |registry| {
            registry.register("etcd_probes", "Probes of etcd members by outcome", this.probes.clone());
            registry.register("etcd_probe_seconds", "Duration of probes of etcd members", this.seconds.clone());
        });
        this
    }

    /// Counts a probe. If there was no address to ask, no probe was made.
    pub(crate) fn observe(&self, outcome: &Outcome, took: Duration) {
        let outcome = match outcome {
            Outcome::Answered(report) if report.fault().is_none() => "ok",
            Outcome::Answered(_) | Outcome::MemberFault(_) => "theirs",
            Outcome::OurFault(_) => "ours",
            Outcome::NoAddress => return,
        };
        self.probes.get_or_create(&Labels { outcome }).inc();
        self.seconds.observe(took.as_secs_f64());
    }
}
