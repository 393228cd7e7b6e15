//! Which Machines may become members: the value of key [`crate::names::ADMITTED`] in the init Secret. An etcd provider
//! writes it to say which Machines may join, and when. The bootstrap provider reads it.

use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;

/// The admitted Machines by UID, each with the time from which on it may join.
pub type Admitted = BTreeMap<String, Timestamp>;

/// Writes `<UID>@<RFC 3339 time>` for each Machine, separated by commas.
#[must_use]
pub fn encode<'a>(admitted: impl IntoIterator<Item = (&'a str, Timestamp)>) -> String {
    let entries: Vec<String> = admitted.into_iter().map(|(uid, since)| format!("{uid}@{since}")).collect();
    entries.join(",")
}

/// Reads what [`encode`] writes. An entry without a readable time admits no Machine: otherwise, a person who edits the
/// Secret could make one controller see a member that the other does not see.
#[must_use]
pub fn decode(text: &str) -> Admitted {
    let entry = |entry: &str| {
        let (uid, since) = entry.split_once('@')?;
        Some((uid.to_owned(), since.parse().ok()?))
    };
    text.split(',').filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let text = encode([("a-1", at(0)), ("b-2", at(1_000_000_000))]);
        assert_eq!(text, "a-1@1970-01-01T00:00:00Z,b-2@2001-09-09T01:46:40Z");
        assert_eq!(decode(&text), [("a-1".to_owned(), at(0)), ("b-2".to_owned(), at(1_000_000_000))].into());
        assert_eq!(encode([]), "");
        assert!(decode("").is_empty());
    }

    #[test]
    fn an_entry_without_a_time_admits_nobody() {
        for bad in ["a-1", "a-1@", "a-1@yesterday", "@", ",,"] {
            assert!(decode(bad).is_empty(), "{bad}");
        }
        assert_eq!(decode("a-1,b-2@1970-01-01T00:00:00Z").len(), 1);
    }
}
