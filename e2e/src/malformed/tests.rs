use super::*;
use crate::bed::crds;
use serde_json::json;
use std::collections::BTreeSet;

/// How many documents a run makes. `E2E_SEED` sets another seed.
const COUNT: usize = 10_000;

fn seed() -> u64 {
    std::env::var("E2E_SEED").map_or(1, |seed| seed.parse().unwrap())
}

fn breaks_its_schema(crds: &[Value], document: &Value) -> Vec<String> {
    violations(schema::of_spec(crds, document).unwrap(), &document["spec"], "spec")
}

#[test]
fn the_originals_are_good_and_handled() {
    let crds = crds().unwrap();
    let kinds: BTreeSet<String> = originals().iter().map(|document| document["kind"].to_string()).collect();
    assert_eq!(kinds.len(), crds.len(), "{kinds:?}");
    for original in originals() {
        assert_eq!(breaks_its_schema(&crds, &original), Vec::<String>::new(), "{original}");
        handled(&original).unwrap();
    }
}

#[test]
fn a_seed_repeats_what_is_made() {
    let crds = crds().unwrap();
    let made = |seed| Generator::new(seed, &crds).unwrap().take(100).map(|made| made.document).collect::<Vec<_>>();
    assert!(made(7) == made(7));
    assert!(made(7) != made(8));
}

/// Everything that the API server accepts satisfies its schema, and some documents that it refuses do too. So our code
/// has to handle all of these.
#[test]
fn what_satisfies_its_schema_is_handled() {
    let (crds, seed) = (crds().unwrap(), seed());
    println!("E2E_SEED={seed} repeats these documents");
    let (mut good, mut kinds, mut faults) = (0, BTreeSet::new(), Vec::new());
    for made in Generator::new(seed, &crds).unwrap().take(COUNT) {
        if breaks_its_schema(&crds, &made.document).is_empty() {
            good += 1;
            kinds.insert(made.document["kind"].to_string());
            faults.extend(handled(&made.document).err().map(|fault| format!("{fault}: {:?}", made.changes)));
        }
    }
    assert!(faults.is_empty(), "{} of {good}:\n{}", faults.len(), faults.join("\n"));
    // Otherwise, too few documents of one sort would have been tried.
    assert!(good > COUNT / 10 && good < COUNT * 9 / 10, "{good} of {COUNT} satisfy their schemas");
    assert_eq!(kinds.len(), crds.len(), "{kinds:?}");
}

#[test]
fn every_kind_of_change_is_made_of_every_kind_and_in_combination() {
    let crds = crds().unwrap();
    let (mut changes, mut combined) = (BTreeSet::new(), 0);
    for made in Generator::new(1, &crds).unwrap().take(3_000) {
        assert!(!made.changes.is_empty(), "{}", made.document);
        combined += usize::from(made.changes.len() > 1);
        let what = made.changes.iter().map(|change| change.split(": ").nth(1).unwrap_or_default().to_owned());
        changes.extend(what.map(|what| format!("{what} in {}", made.document["kind"])));
    }
    for what in [
        "another type",
        "out of bounds",
        "huge",
        "empty",
        "odd text",
        "an unknown field",
        "a field less",
        "a field more",
    ] {
        assert!(changes.contains(&format!("{what} in \"EtcdCluster\"")), "{what}: {changes:?}");
        assert!(changes.contains(&format!("{what} in \"EtcdadmConfig\"")), "{what}: {changes:?}");
    }
    assert!(combined > 1_000, "{combined}");
}

#[test]
fn what_breaks_a_schema_is_named() {
    let crds = crds().unwrap();
    let template = json!({"kind": "XTemplate", "name": "a", "apiGroup": "g.example"});
    let broken = |change: Value| {
        let mut document = originals()[0].clone();
        document["spec"]["infrastructureTemplate"] = template.clone();
        let changes = change.as_object().unwrap().clone();
        document["spec"].as_object_mut().unwrap().extend(changes);
        breaks_its_schema(&crds, &document)
    };
    assert!(broken(json!({})).is_empty());
    for (change, what) in [
        (json!({"replicas": "3"}), "spec.replicas: of another type"),
        (json!({"replicas": 1_u64 << 40}), "spec.replicas: no integer"),
        (json!({"replica": 3}), "spec.replica: unknown"),
        (json!({"infrastructureTemplate": {"kind": "XTemplate"}}), "spec.infrastructureTemplate.name: required"),
        (json!({"addressTypes": []}), "spec.addressTypes: too few or too many"),
        (json!({"addressTypes": ["X"]}), "spec.addressTypes[0]: not one of the values"),
        (json!({"healthCheck": {"intervalSeconds": 0}}), "spec.healthCheck.intervalSeconds: too low"),
        (json!({"healthCheck": {"intervalSeconds": 3601}}), "spec.healthCheck.intervalSeconds: too high"),
        (json!({"rolloutAfter": "tomorrow"}), "spec.rolloutAfter: no time"),
        (
            json!({"etcdadmConfigSpec": {"version": "1".repeat(65)}}),
            "spec.etcdadmConfigSpec.version: too short or too long",
        ),
    ] {
        assert_eq!(broken(change), [what]);
    }
}

#[test]
fn what_our_types_do_not_take_is_a_fault() {
    assert!(handled(&json!({"kind": "EtcdCluster"})).unwrap_err().contains("our types do not take it"));
    assert!(handled(&json!({"kind": "Another"})).is_err());
}
