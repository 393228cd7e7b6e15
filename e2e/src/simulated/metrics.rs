//! The few metrics that are asked for.

use super::ensemble::Ensemble;
use std::fmt::Write;

/// In Prometheus' text form, as etcd serves them among many others.
pub(super) fn text(ensemble: &Ensemble, id: u64) -> String {
    let leads = ensemble.leader() == Some(id);
    let mut text = String::new();
    let mut gauge = |name: &str, labels: &str, value: bool| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name}{labels} {}", u8::from(value));
    };
    for (other, heard) in ensemble.heard_by(id) {
        gauge("etcd_network_active_peers", &format!("{{Local=\"{id:x}\",Remote=\"{other:x}\"}}"), heard);
    }
    gauge("etcd_server_has_leader", "", ensemble.leader().is_some());
    gauge("etcd_server_is_leader", "", leads);
    text
}
