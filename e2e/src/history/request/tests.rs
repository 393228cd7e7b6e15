//! The form is etcd's, not ours: these are the bytes that its suite reads.

use super::*;
use serde_json::{json, to_value};

#[test]
fn a_put_is_a_transaction_of_one_operation() {
    assert_eq!(
        to_value(Request::put("/history/a", "1-1", 7)).unwrap(),
        json!({"Type": "txn", "Txn": {
            "Conditions": [],
            "OperationsOnSuccess": [
                {"Type": "put-operation", "Put": {"Key": "/history/a", "Value": {"Value": "1-1"}, "LeaseID": 7}},
            ],
            "OperationsOnFailure": [],
        }})
    );
}

#[test]
fn a_read_names_its_range() {
    let range = |start: &str, end: &str, limit: i64, revision: i64| json!({"Type": "range", "Range": {"Start": start, "End": end, "Limit": limit, "Revision": revision}});
    assert_eq!(to_value(Request::get("/history/a")).unwrap(), range("/history/a", "", 0, 0));
    assert_eq!(to_value(Request::all(3)).unwrap(), range("/history/", "/history0", 3, 0));
    assert_eq!(to_value(Request::past(8)).unwrap(), range("/history/", "/history0", 0, 8));
}

#[test]
fn a_lease_has_an_id() {
    assert_eq!(to_value(Request::revoke(9)).unwrap(), json!({"Type": "leaseRevoke", "LeaseRevoke": {"LeaseID": 9}}));
}

#[test]
fn a_transaction_that_may_write_is_not_a_read() {
    assert!(Request::get("a").is_read());
    assert!(!Request::swap("a", 0, "v").is_read());
    assert!(!Request::delete("a").is_read());
    assert!(!Request::grant(1).is_read());
}
