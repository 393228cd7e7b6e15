//! Endpoints that change, and control planes that roll out.

use super::*;
use crate::observation::{Joining, Used};
use api::endpoints::{EndpointList, EndpointLists, parse_list};
use proptest::prelude::*;
use std::collections::BTreeSet;

const ONE: &str = "https://10.0.0.1:2379";
const TWO: &str = "https://10.0.0.2:2379";
/// Some machines have the one list, and some the other.
const BOTH: &str = "https://10.0.0.1:2379;https://10.0.0.2:2379";

fn lists(text: &str) -> EndpointLists {
    EndpointLists::parse(text)
}

fn running(endpoints: &str) -> World {
    let mut world = World::applied();
    world.set_ready(true, endpoints);
    world.stage("1");
    world.settle();
    world.report_machines(world.generation(), 3, 3);
    assert_eq!(world.settle(), (vec![], Plan::Steady));
    world
}

#[test]
fn old_endpoints_stay_in_use_until_the_last_machine_has_rolled() {
    let mut world = running(ONE);
    assert_eq!(world.in_use(), Some(ONE));
    world.set_ready(true, TWO);
    insta::assert_snapshot!(world.story(), @r#"
    RecordEndpointsInUse(https://10.0.0.1:2379;https://10.0.0.2:2379)
    WriteEndpoints(["https://10.0.0.2:2379"])
    Steady
    "#);
    // The status is still that of the previous spec.
    assert_eq!(world.in_use(), Some(BOTH));
    let generation = world.generation();
    for (observed, replicas, up_to_date) in
        [(generation, 3, 0), (generation, 4, 1), (generation, 4, 3), (generation - 1, 3, 3), (generation, 2, 1)]
    {
        world.report_machines(observed, replicas, up_to_date);
        assert_eq!(world.settle(), (vec![], Plan::Steady));
        assert_eq!(world.in_use(), Some(BOTH));
    }
    world.report_machines(generation, 3, 3);
    insta::assert_snapshot!(world.story(), @r#"
    RecordEndpointsInUse(https://10.0.0.2:2379)
    Steady
    "#);
}

#[test]
fn a_shorter_list_is_in_use_until_the_last_machine_has_rolled() {
    let mut world = running(ONE);
    let both = format!("{ONE},{TWO}");
    world.set_ready(true, &both);
    world.settle();
    assert_eq!(world.in_use(), Some(format!("{ONE};{both}").as_str()));
    assert_eq!(earlier(&world.observe()), lists(ONE), "and it is told, though no endpoint leaves");
    world.report_machines(world.generation(), 3, 3);
    world.settle();
    assert_eq!(world.in_use(), Some(both.as_str()));
}

#[test]
fn a_rollout_is_seen_while_etcd_is_not_ready() {
    let mut world = running(ONE);
    world.set_ready(true, TWO);
    world.settle();
    world.set_ready(false, TWO);
    world.report_machines(world.generation(), 3, 3);
    assert_eq!(world.settle().0, [Step::RecordEndpointsInUse { lists: lists(TWO), retire: true }]);
}

#[test]
fn a_control_plane_that_says_nothing_keeps_all_in_use() {
    let mut world = running(ONE);
    world.control_plane.as_mut().unwrap()["status"] = json!({"initialized": true});
    world.set_ready(true, TWO);
    world.settle();
    assert_eq!(world.in_use(), Some(BOTH));
    // A control plane that is being deleted has machines until it is gone. Afterwards, nothing is known of them.
    world.report_machines(world.generation(), 3, 3);
    world.control_plane.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(world.settle().0, []);
    world.control_plane = None;
    assert_eq!(world.settle().0, []);
    assert_eq!(world.in_use(), Some(BOTH));
}

#[test]
fn what_an_earlier_hook_has_handed_over_is_told() {
    let mut world = running(ONE);
    world.etcd.as_mut().unwrap()["metadata"]["annotations"] = json!({});
    assert_eq!(world.settle().0, [Step::RecordEndpointsInUse { lists: lists(ONE), retire: false }]);
}

/// After `kubectl replace`, or with a GitOps tool that replaces objects: the annotation is not in the manifest.
#[test]
fn a_record_that_is_lost_in_a_rollout_is_made_again_of_what_machines_use() {
    let mut world = running(ONE);
    world.set_ready(true, TWO);
    world.settle();
    world.report_machines(world.generation(), 4, 1);
    world.lose_record();
    for unknown in [Used::Unknown, Used::NoMachine, Used::OfSpec] {
        world.used = unknown;
        assert_eq!(world.settle().0, [], "a record that is not complete would be taken for the whole");
        assert_eq!(world.in_use(), None);
    }
    world.used = Used::These(lists(BOTH));
    insta::assert_snapshot!(world.story(), @r#"
    RecordEndpointsInUse(https://10.0.0.1:2379;https://10.0.0.2:2379)
    Steady
    "#);
    // The placeholder came back with the manifest: the control plane no longer shows which endpoints it was given.
    world.lose_record();
    world.user_restores_placeholder();
    world.used = Used::These(lists(ONE));
    // kubeadm has the endpoints from the beginning of the rollout.
    world.joining = Some(Joining::With(parse_list(TWO)));
    assert!(
        !matches!(world.plan().1, Plan::Do(Step::RecordEndpointsInUse { .. })),
        "the spec has not been observed yet"
    );
    world.report_machines(world.generation(), 4, 1);
    let (observation, plan) = world.plan();
    let Plan::Do(step) = plan else { panic!("{plan:?}") };
    assert_eq!(step, Step::RecordEndpointsInUse { lists: lists(BOTH), retire: false });
    assert!(world.act(&observation, &step));
}

#[test]
fn a_control_plane_that_has_no_machine_yet_needs_no_record_of_before() {
    let mut world = World::applied();
    world.set_ready(true, ONE);
    world.stage("1");
    world.user_writes_endpoints(&[TWO]);
    world.used = Used::NoMachine;
    assert_eq!(world.settle().1, Plan::Steady);
    assert_eq!(world.in_use(), Some(BOTH));
}

#[test]
fn what_machines_use_is_asked_again_until_it_can_be_told() {
    let mut world = running(ONE);
    world.set_ready(true, TWO);
    world.settle();
    world.report_machines(world.generation(), 3, 3);
    for (used, expected) in [(Used::Unknown, Some(60)), (Used::NoMachine, Some(60)), (Used::These(lists(BOTH)), None)] {
        world.used = used;
        let (observation, plan) = world.plan();
        assert_eq!(plan, Plan::Steady);
        assert_eq!(due(&observation, &plan).map(|delay| delay.as_secs()), expected, "no watch tells");
    }
}

#[test]
fn counts_that_are_not_true_retire_nothing() {
    let mut world = running(ONE);
    world.set_ready(true, TWO);
    world.settle();
    world.report_machines(world.generation(), 0, 0);
    assert_eq!(world.settle().0, [], "0 of 0: it has only begun to report");
    world.report_machines(world.generation(), 3, 3);
    world.used = Used::These(lists(BOTH));
    assert_eq!(world.settle().0, [], "a machine was made with the old endpoint");
    world.used = Used::Unknown;
    assert_eq!(world.settle().0, [], "what a machine was made with is not known");
    assert_eq!(world.in_use(), Some(BOTH));
    world.used = Used::These(lists(TWO));
    assert_eq!(world.settle().0, [Step::RecordEndpointsInUse { lists: lists(TWO), retire: true }]);
}

/// All machines have the new endpoint.
fn rolled() -> World {
    let mut world = running(ONE);
    world.set_ready(true, TWO);
    world.settle();
    world.report_machines(world.generation(), 3, 3);
    world.used = Used::These(lists(TWO));
    world
}

#[test]
fn what_further_machines_would_join_with_is_in_use_too() {
    let mut world = rolled();
    let unknown = Joining::Unknown("its API server does not answer".to_owned());
    for kept in [unknown, Joining::WithNone, Joining::With(parse_list(ONE))] {
        world.joining = Some(kept);
        let (observation, plan) = world.plan();
        assert_eq!(plan, Plan::Steady, "all stay in use");
        assert_eq!(due(&observation, &plan).map(|delay| delay.as_secs()), Some(60), "no watch tells");
        assert_eq!(world.in_use(), Some(BOTH));
    }
    world.joining = Some(Joining::With(parse_list(TWO)));
    assert_eq!(world.settle().0, [Step::RecordEndpointsInUse { lists: lists(TWO), retire: true }]);
    // No machine can join if kubeadm keeps no configuration.
    let mut world = rolled();
    world.joining = Some(Joining::With(EndpointList::new()));
    assert_eq!(world.settle().0, [Step::RecordEndpointsInUse { lists: lists(TWO), retire: true }]);
    // If the record is lost, the new record includes the list that further machines would join with.
    let mut world = rolled();
    world.lose_record();
    for unknown in [Joining::Unknown("its API server does not answer".to_owned()), Joining::WithNone] {
        world.joining = Some(unknown);
        assert_eq!((world.settle().0, world.in_use()), (vec![], None));
    }
    world.joining = Some(Joining::With(parse_list(ONE)));
    assert_eq!(world.settle().0, [Step::RecordEndpointsInUse { lists: lists(BOTH), retire: false }]);
}

#[test]
fn the_kubernetes_cluster_is_asked_only_when_a_list_is_about_to_leave() {
    let asks = |world: &World| world.plan().0.reads.joining.is_some();
    let mut world = rolled();
    assert!(asks(&world));
    world.used = Used::These(lists(BOTH));
    assert!(!asks(&world), "a machine has the old endpoint");
    world.report_machines(world.generation(), 4, 1);
    assert!(!asks(&world), "machines are still being replaced");
    let mut world = running(ONE);
    world.used = Used::These(lists(ONE));
    assert!(!asks(&world), "there is nothing to retire");
    world.set_ready(true, TWO);
    assert!(!asks(&world), "endpoints enter without a question");
}

/// Machines, each with the endpoints that it was started with, and the controller that replaces them.
struct Machines(Vec<EndpointList>);

impl Machines {
    /// One reconcile. It ends with a status that counts the machines as they were at its beginning.
    fn reconcile(&mut self, world: &mut World) {
        let wanted = parse_list(&world.endpoints());
        let generation = world.generation();
        let (replicas, up_to_date) = (self.0.len(), self.0.iter().filter(|machine| **machine == wanted).count());
        if let Some(old) = self.0.iter().position(|machine| *machine != wanted).filter(|_| replicas > 3) {
            self.0.remove(old);
        } else if up_to_date < 3 {
            self.0.push(wanted);
        }
        world.report_machines(generation, replicas, up_to_date);
    }
}

#[derive(Clone, Debug)]
enum Happening {
    /// The hook takes one step, if there is one, and may be killed after it.
    Hook,
    Machines,
    Endpoints(BTreeSet<u8>),
    Ready(bool),
    /// Somebody replaces the etcd object without the annotation.
    RecordIsLost,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => Just(Happening::Hook),
        4 => Just(Happening::Machines),
        1 => proptest::collection::btree_set(1..7_u8, 1..4).prop_map(Happening::Endpoints),
        1 => any::<bool>().prop_map(Happening::Ready),
        1 => Just(Happening::RecordIsLost),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Each list that a machine was started with, or that the next machine will be started with, is in use. Once
    /// everything has settled, no other list is.
    #[test]
    fn nothing_that_a_machine_uses_is_ever_missing(happenings in proptest::collection::vec(happening(), 0..80)) {
        let (mut endpoints, mut ready) = (ONE.to_owned(), true);
        let mut world = running(&endpoints);
        let mut machines = Machines(vec![parse_list(ONE); 3]);
        for happening in happenings {
            match happening {
                Happening::Hook => {
                    if let (observation, Plan::Do(step)) = world.plan() {
                        world.act(&observation, &step);
                    }
                }
                Happening::Machines => machines.reconcile(&mut world),
                Happening::Endpoints(hosts) => {
                    let urls: Vec<String> = hosts.iter().map(|host| format!("https://10.0.0.{host}:2379")).collect();
                    endpoints = urls.join(",");
                    world.set_ready(ready, &endpoints);
                }
                Happening::Ready(now) => {
                    ready = now;
                    world.set_ready(ready, &endpoints);
                }
                Happening::RecordIsLost => world.lose_record(),
            }
            world.used = Used::These(machines.0.iter().cloned().collect());
            // Without a record, etcd's provider retires no member.
            let Some(in_use) = world.in_use().map(lists) else { continue };
            let present = parse_list(&world.endpoints());
            let used: EndpointLists = machines.0.iter().cloned().chain([present]).collect();
            prop_assert!(!used.has_more_than(&in_use), "{used} are used, and {in_use} are recorded");
        }
        world.set_ready(true, &endpoints);
        for _ in 0..20 {
            world.settle();
            machines.reconcile(&mut world);
            world.used = Used::These(machines.0.iter().cloned().collect());
        }
        prop_assert_eq!(world.settle(), (vec![], Plan::Steady));
        prop_assert_eq!(world.in_use(), Some(endpoints.as_str()));
        prop_assert_eq!(world.endpoints(), endpoints);
    }
}
