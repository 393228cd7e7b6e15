//! The few metrics that this project reads.

use super::ensemble::Ensemble;
use std::fmt::Write;
use std::sync::LazyLock;
use std::time::Instant;

/// When this program started.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The metrics in Prometheus' text form; etcd serves many others too. Each member that is heard sends one byte per
/// millisecond.
pub(super) fn text(ensemble: &Ensemble, id: u64) -> String {
    let leads = ensemble.leader() == Some(id);
    let mut text = String::new();
    let mut line = |name: &str, labels: &str, value: u128| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name}{labels} {value}");
    };
    for (other, _) in ensemble.heard_by(id).filter(|(_, heard)| *heard) {
        line("etcd_network_peer_received_bytes_total", &format!("{{From=\"{other:x}\"}}"), BEGUN.elapsed().as_millis());
    }
    line("etcd_server_has_leader", "", u128::from(ensemble.leader().is_some()));
    line("etcd_server_is_leader", "", u128::from(leads));
    text
}
