//! The record of our own writes of endpoints. It shows which of them others overwrite.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;

/// Annotation on a control plane: [`WrittenEndpoints`]. One patch writes it together with the endpoints, so that
/// whatever reads the endpoints has the record too: another manager, or the manager of another management cluster.
pub const WRITTEN_ENDPOINTS_ANNOTATION: &str = "etcdcluster.cluster.x-k8s.io/written-endpoints";

/// The shortest and the longest time between two corrections of what others overwrite. Each time is twice the one
/// before.
const BETWEEN: (SignedDuration, SignedDuration) = (SignedDuration::from_secs(10), SignedDuration::from_mins(5));
/// After this time without a correction, earlier corrections no longer count.
const QUIET: SignedDuration = SignedDuration::from_hours(1);

/// A write of endpoints into a control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenEndpoints {
    /// What was written.
    pub endpoints: Vec<String>,
    /// When.
    at: Timestamp,
    /// How often the same endpoints recently had to be written again, because somebody else had overwritten them.
    corrections: u32,
}

impl WrittenEndpoints {
    /// Reads the annotation. None: there is none, or it is not a record.
    pub fn read(control_plane: &DynamicObject) -> Option<Self> {
        let text = control_plane.annotations().get(WRITTEN_ENDPOINTS_ANNOTATION)?;
        let record: Value = serde_json::from_str(text).ok()?;
        let urls = record["endpoints"].as_array().filter(|urls| !urls.is_empty())?;
        let endpoints: BTreeSet<String> =
            urls.iter().map(|url| url.as_str().map(str::to_owned)).collect::<Option<_>>()?;
        Some(Self {
            endpoints: endpoints.into_iter().collect(),
            at: record["at"].as_str()?.parse().ok()?,
            corrections: record["corrections"].as_u64()?.try_into().ok()?,
        })
    }

    /// The later of two records. The annotation may have come back with an old manifest, and this process may have
    /// written before another process did.
    pub fn later(annotation: Option<Self>, remembered: Option<Self>) -> Option<Self> {
        remembered.into_iter().chain(annotation).max_by_key(|written| written.at)
    }

    /// The record of a write of `endpoints`, given the record `before` it.
    pub fn after(before: Option<&Self>, endpoints: &[String], now: &Time) -> Self {
        let recent = before.filter(|before| now.0.duration_since(before.at) < QUIET);
        let corrections = recent.map_or(0, |before| before.corrections + u32::from(before.endpoints == endpoints));
        Self { endpoints: endpoints.to_vec(), at: now.0, corrections }
    }

    /// Whether the same endpoints may be written again. If the clock was set back, they may: otherwise the wait would
    /// last until the clock has caught up.
    pub fn is_due(&self, now: Timestamp) -> bool {
        now < self.at || now >= self.due()
    }

    /// When the same endpoints may be written again. The first correction is due at once.
    pub fn due(&self) -> Timestamp {
        let Some(doublings) = self.corrections.checked_sub(1) else { return self.at };
        let delay = BETWEEN.0.checked_mul(2_i32.saturating_pow(doublings)).unwrap_or(BETWEEN.1).min(BETWEEN.1);
        self.at.checked_add(delay).unwrap_or(self.at)
    }
}

/// The value of the annotation.
impl fmt::Display for WrittenEndpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoints, at, corrections } = self;
        write!(f, "{}", json!({"endpoints": endpoints, "at": at.to_string(), "corrections": corrections}))
    }
}

/// Who wrote a field last, other than us. The path begins at the top of the object.
pub fn field_manager(entries: &[ManagedFieldsEntry], path: &[String], us: &str) -> Option<String> {
    let has = |entry: &ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        path.iter().fold(fields, |value, key| value?.get(format!("f:{key}"))).is_some()
    };
    let others = entries.iter().filter(|entry| entry.manager.as_deref() != Some(us) && has(entry));
    others.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?.manager.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn the_first_correction_is_due_at_once_and_later_ones_less_and_less_often() {
        let endpoints = ["https://10.0.0.1:2379".to_owned()];
        let mut written = WrittenEndpoints::after(None, &endpoints, &at(0));
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            let due = written.due().as_second().max(now);
            waits.push(due - now);
            now = due;
            written = WrittenEndpoints::after(Some(&written), &endpoints, &at(now));
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        let other = WrittenEndpoints::after(Some(&written), &["https://10.0.0.2:2379".to_owned()], &at(now));
        assert_eq!(other.corrections, 8, "endpoints that change meanwhile do not start the fight again");
        assert!(!written.is_due(at(now + 299).0) && written.is_due(at(now + 300).0));
        assert!(written.is_due(at(now - 1).0), "the clock was set back");
        let quiet = WrittenEndpoints::after(Some(&written), &endpoints, &at(now + 3600));
        assert_eq!(quiet.due(), at(now + 3600).0, "after a quiet time it does");
    }

    #[test]
    fn the_later_record_counts() {
        let written = |host: u8, second| {
            Some(WrittenEndpoints::after(None, &[format!("https://10.0.0.{host}:2379")], &at(second)))
        };
        for (annotation, remembered, expected) in [
            (None, None, None),
            (written(1, 5), None, written(1, 5)),
            (None, written(2, 5), written(2, 5)),
            (written(1, 5), written(2, 6), written(2, 6)),
            (written(1, 6), written(2, 5), written(1, 6)),
            (written(1, 5), written(2, 5), written(1, 5)),
        ] {
            assert_eq!(WrittenEndpoints::later(annotation, remembered), expected);
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_what_others_write_is_not_believed() {
        let read = |value: &str| {
            let annotations = json!({WRITTEN_ENDPOINTS_ANNOTATION: value});
            let object = json!({"metadata": {"name": "cp", "annotations": annotations}});
            WrittenEndpoints::read(&serde_json::from_value(object).unwrap())
        };
        let endpoints = ["https://10.0.0.1:2379".to_owned(), "https://[fd00::1]:2379".to_owned()];
        let first = WrittenEndpoints::after(None, &endpoints, &at(0));
        let second = WrittenEndpoints::after(Some(&first), &endpoints, &at(10));
        for written in [first, second] {
            assert_eq!(read(&written.to_string()), Some(written));
        }
        let good = json!({"endpoints": ["https://10.0.0.1:2379"], "at": "2026-01-01T00:00:00Z", "corrections": 0});
        assert!(read(&good.to_string()).is_some());
        for (key, bad) in [
            ("endpoints", json!([])),
            ("endpoints", json!([1])),
            ("endpoints", json!("https://10.0.0.1:2379")),
            ("at", json!("yesterday")),
            ("corrections", json!(-1)),
            ("corrections", Value::Null),
        ] {
            let mut record = good.clone();
            record[key] = bad;
            assert_eq!(read(&record.to_string()), None, "{record}");
        }
        for bad in ["", "https://10.0.0.1:2379", "[]"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_last_manager_of_the_field_is_named() {
        let path = ["spec", "etcd", "endpoints"].map(str::to_owned);
        let entry = |manager: &str, time: i64, fields: serde_json::Value| -> ManagedFieldsEntry {
            let time = Timestamp::from_second(time).unwrap().to_string();
            serde_json::from_value(json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields}))
                .unwrap()
        };
        let endpoints = json!({"f:spec": {"f:etcd": {"f:endpoints": {}}}});
        let entries = [
            entry("kubectl", 5, endpoints.clone()),
            entry("argocd", 9, endpoints.clone()),
            entry("us", 10, endpoints),
            entry("manager", 11, json!({"f:spec": {"f:replicas": {}}})),
        ];
        assert_eq!(field_manager(&entries, &path, "us").as_deref(), Some("argocd"));
        assert_eq!(field_manager(&entries[2..], &path, "us"), None);
    }
}
