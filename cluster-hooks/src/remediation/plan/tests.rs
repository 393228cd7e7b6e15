use super::*;
use crate::fixture::World;
use serde_json::Value;

/// A Machine as Cluster API would write it, with a change.
fn machine(name: &str, change: impl FnOnce(&mut Value)) -> ControlPlaneMachine {
    let mut value = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1", "annotations": {},
            "ownerReferences": [{"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane",
                "name": "demo-cp", "uid": "cp", "controller": true}]},
        "status": {"nodeRef": {"name": name}, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    change(&mut value);
    ControlPlaneMachine::read(&crate::fixture::object(&value), "cluster.x-k8s.io/v1beta2")
}

/// Sets the conditions that a MachineHealthCheck and Cluster API 1.14.0 leave on a Machine if etcd is external.
fn deferred(machine: &mut Value) {
    machine["status"]["conditions"] = json!([
        {"type": "Ready", "status": "False"},
        {"type": "HealthCheckSucceeded", "status": "False", "reason": "UnhealthyNode"},
        {"type": "OwnerRemediated", "status": "False", "reason": "RemediationDeferred",
            "message": "Failed to check etcd cluster health before remediation"},
    ]);
}

/// A control plane of three replicas that works with its etcd, and has these Machines.
fn observation(machines: Vec<ControlPlaneMachine>) -> Observation {
    let mut world = World::applied().etcd_ready();
    world.settle();
    let observed = world.observe();
    let mut control_plane = observed.found_control_plane().unwrap().clone();
    control_plane.initialized = true;
    control_plane.uid = "cp".to_owned();
    let etcd = observed.found_etcd().unwrap().clone();
    Observation { etcd, control_plane, cluster: observed.cluster, machines }
}

fn remediates(observation: &Observation) -> Option<String> {
    match plan(observation) {
        Plan::Do(Step::Delete(machine)) => Some(machine.name),
        _ => None,
    }
}

fn notes(observation: &Observation) -> Option<Value> {
    match plan(observation) {
        Plan::Do(Step::Note(note)) => Some(serde_json::from_str(&note).unwrap()),
        _ => None,
    }
}

/// Marks a Machine as being deleted, as the API server does.
fn deleting(machine: &mut Value) {
    deferred(machine);
    machine["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:16:30Z");
}

/// Changes a Machine into one that never became a Node.
fn lost(machine: &mut Value) {
    deferred(machine);
    machine["status"]["nodeRef"] = Value::Null;
}

#[test]
fn a_remediation_that_only_waits_for_a_look_at_etcd_goes_on() {
    let observation = observation(vec![machine("a", |_| ()), machine("b", deferred), machine("c", |_| ())]);
    assert_eq!(remediates(&observation).as_deref(), Some("b"));
}

#[test]
fn a_deletion_is_confirmed_as_the_machine_is_live() {
    let planned = machine("b", deferred);
    let confirmed = |live| confirm(&planned, &observation(vec![machine("a", |_| ()), live]));
    let changed = machine("b", |machine| {
        deferred(machine);
        machine["metadata"]["resourceVersion"] = json!("2");
    });
    assert_eq!(confirmed(changed.clone()), Some(Step::Delete(changed)));
    let another = machine("b", |machine| {
        deferred(machine);
        machine["metadata"]["uid"] = json!("made again");
    });
    assert_eq!(confirmed(another), None, "another Machine of this name");
    assert_eq!(confirmed(machine("b", deleting)), None, "what is to be noted now is planned again");
    assert_eq!(confirmed(machine("b", |_| ())), None, "it is healthy again");
}

#[test]
fn it_is_noted_while_the_machine_goes_and_nothing_else_is_replaced_meanwhile() {
    let mut observation = observation(vec![machine("a", |_| ()), machine("b", deleting), machine("c", deferred)]);
    let note = json!({"machine": "b", "timestamp": "1970-01-01T00:16:30Z", "retryCount": 0});
    assert_eq!(notes(&observation), Some(note), "also by a process that has not deleted it itself");
    observation.control_plane.remediating = true;
    assert_eq!(plan(&observation), Plan::Steady, "it is noted");
    // The condition of the other Machine still says so, and the new Machine does not exist yet.
    observation.machines = vec![machine("a", |_| ()), machine("c", deferred)];
    assert_eq!(plan(&observation), Plan::Steady, "the control plane has not made the new one");
    observation.control_plane.remediating = false;
    assert_eq!(remediates(&observation).as_deref(), Some("c"));
}

#[test]
fn the_note_is_none_of_a_deletion_that_is_not_ours() {
    for change in [
        |_: &mut Value| (),
        |machine: &mut Value| machine["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:16:30Z"),
    ] {
        assert_eq!(notes(&observation(vec![machine("a", |_| ()), machine("b", change)])), None);
    }
}

#[test]
fn one_that_never_became_a_node_is_replaced_and_holds_nobody_up() {
    let only = observation(vec![machine("a", |_| ()), machine("b", lost)]);
    assert_eq!(remediates(&only).as_deref(), Some("b"));
    let two = observation(vec![machine("a", deferred), machine("b", lost), machine("c", |_| ())]);
    assert_eq!(remediates(&two).as_deref(), Some("b"), "first what never served");
}

#[test]
fn which_one_goes_does_not_depend_on_the_order_of_the_watch() {
    for names in [["b", "c"], ["c", "b"]] {
        let [first, second] = names.map(|name| machine(name, deferred));
        assert_eq!(remediates(&observation(vec![first, machine("a", |_| ()), second])).as_deref(), Some("b"));
    }
}

#[test]
fn a_machine_that_goes_in_the_middle_of_a_rollout_is_not_noted() {
    // With the surge, there are as many Machines as wanted without this one. The control plane makes none, and would
    // never remove the note.
    let all = vec![machine("a", |_| ()), machine("b", deleting), machine("c", |_| ()), machine("d", |_| ())];
    assert_eq!(notes(&observation(all)), None);
    let one_less = vec![machine("a", |_| ()), machine("b", deleting), machine("d", |_| ())];
    assert!(notes(&observation(one_less)).is_some());
}

#[test]
fn retries_are_counted_as_the_control_plane_does() {
    let made_in = |timestamp: &'static str| {
        move |machine: &mut Value| {
            deleting(machine);
            let note = json!({"machine": "before", "timestamp": timestamp, "retryCount": 2}).to_string();
            machine["metadata"]["annotations"] = json!({"controlplane.cluster.x-k8s.io/remediation-for": note});
        }
    };
    for (timestamp, count) in [("1970-01-01T00:00:00Z", 3), ("1969-12-31T23:00:00Z", 0)] {
        let observation = observation(vec![machine("a", |_| ()), machine("b", made_in(timestamp))]);
        assert_eq!(notes(&observation).unwrap()["retryCount"], count, "{timestamp}");
    }
}

#[test]
fn nothing_is_deleted_for_any_other_reason_or_at_any_other_time() {
    type Change = fn(&mut Value);
    let others: [(&str, Change); 4] = [
        ("the control plane has another reason", |machine| {
            deferred(machine);
            machine["status"]["conditions"][2]["message"] = json!("waiting for something else");
        }),
        ("it cannot be remediated", |machine| {
            deferred(machine);
            machine["status"]["conditions"][2]["reason"] = json!("CannotBeRemediated");
        }),
        ("it is healthy again", |machine| {
            deferred(machine);
            machine["status"]["conditions"][1]["status"] = json!("True");
        }),
        ("it is not the control plane's", |machine| {
            deferred(machine);
            machine["metadata"]["ownerReferences"][0]["uid"] = json!("another");
        }),
    ];
    for (why, change) in others {
        assert_eq!(remediates(&observation(vec![machine("a", |_| ()), machine("b", change)])), None, "{why}");
    }
    assert_eq!(
        remediates(&observation(vec![machine("a", |_| ()), machine("b", deleting)])),
        None,
        "it is being deleted"
    );
    assert_eq!(remediates(&observation(vec![machine("b", deferred)])), None, "no other one serves");
    let joining = machine("a", |machine| machine["status"]["nodeRef"] = Value::Null);
    assert_eq!(
        remediates(&observation(vec![joining, machine("b", deferred), machine("c", |_| ())])),
        None,
        "one joins"
    );
    assert_eq!(
        remediates(&observation(vec![machine("a", deferred), machine("b", deferred)])),
        None,
        "no other one is Ready"
    );
}

#[test]
fn etcd_has_to_be_well_and_nobody_may_have_paused_anything() {
    let base = || observation(vec![machine("a", |_| ()), machine("b", deferred)]);
    assert!(remediates(&base()).is_some());
    let mut observation = base();
    observation.etcd.ready = false;
    assert_eq!(remediates(&observation), None, "etcd is not Ready");
    let mut observation = base();
    observation.etcd.claim = Claim::Theirs("other".to_owned());
    assert_eq!(remediates(&observation), None, "etcd belongs to another Cluster");
    let mut observation = base();
    observation.control_plane.endpoints = Some(vec!["https://10.9.0.1:2379".to_owned()]);
    assert_eq!(remediates(&observation), None, "it uses another etcd");
    let mut observation = base();
    observation.control_plane.pause = crate::observation::Pause::Users;
    assert_eq!(remediates(&observation), None, "the user has paused the control plane");
    let mut observation = base();
    observation.control_plane.remediating = true;
    assert_eq!(remediates(&observation), None, "the control plane is replacing another one");
    let mut observation = base();
    observation.cluster.view.paused_by = Some("spec.paused".to_owned());
    assert_eq!(remediates(&observation), None, "the Cluster is paused");
    let mut observation = base();
    observation.cluster.view.deleting = true;
    assert_eq!(remediates(&observation), None, "the Cluster is being deleted");
}
