//! How much of its quota the database takes.

use super::{Finding, Installation, Subject, text};
use serde_json::Value;

/// etcd's own default in bytes.
const DEFAULT_QUOTA: u64 = 2 << 30;
/// Percentage of the quota from which little time is left. The alert has the same.
const LITTLE: u64 = 80;

pub(super) fn check(subject: &Subject, _: &Installation) -> Vec<Finding> {
    let Some(live) = &subject.live else { return Vec::new() };
    let members = live.pointer("/status/members").and_then(Value::as_array);
    let sizes = members.into_iter().flatten().filter_map(|member| Some((size(member)?, text(member, "/name"))));
    let quota = subject.etcd.pointer("/spec/etcdadmConfigSpec/etcd/quotaBackendBytes").and_then(Value::as_u64);
    let quota = quota.filter(|quota| *quota > 0).unwrap_or(DEFAULT_QUOTA);
    let Some((largest, name)) = sizes.max() else {
        return vec![Finding::unseen("no member has told how large its database is", "")];
    };
    let percent = largest.saturating_mul(100) / quota;
    let seen = format!("{percent} % of the quota of {} MiB, on member {name}", quota >> 20);
    let quota_taken = match percent {
        100.. => {
            Finding::fault(seen, "compact and defragment it, disarm the alarm, and set a higher quotaBackendBytes")
        }
        LITTLE.. => Finding::warning(
            seen,
            "set a higher quotaBackendBytes in time: when the quota is reached, nothing can be written",
        ),
        _ => Finding::ok(seen),
    };
    let mut found = vec![quota_taken];
    // If the members were asked, another check reports on their disks, or why they do not say.
    if subject.metrics.is_none() {
        found.push(Finding::unseen("the disks of the machines: this program did not look", ""));
    }
    found
}

fn size(member: &Value) -> Option<u64> {
    member["databaseSizeBytes"].as_u64()
}
