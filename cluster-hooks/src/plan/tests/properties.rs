use super::*;
use crate::observation::{WRITTEN_ENDPOINTS_ANNOTATION, WrittenEndpoints};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

/// What may happen between two observations of a manager.
#[derive(Clone, Debug)]
enum Happening {
    /// A manager observes and decides.
    Look(usize),
    /// The same manager acts on what it decided then.
    Act(usize),
    /// A manager is killed and started again: it forgets its decision, and then observes, decides and acts.
    Restart(usize),
    UserPauses,
    UserUnpauses,
    UserRestoresPlaceholder,
    UserWritesEndpoints(u8),
    /// A person says that the control plane was given nothing.
    UserDisowns,
    /// A tool restores an old annotation.
    OldRecord(u8),
    EtcdReady(bool),
    EndpointsChange(u8),
    CertificateChanges(u8),
    ControlPlaneInitialized,
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::*;
    prop_oneof![
        8 => (0..2_usize).prop_map(Look),
        8 => (0..2_usize).prop_map(Act),
        4 => (0..2_usize).prop_map(Restart),
        1 => Just(UserPauses),
        1 => Just(UserUnpauses),
        1 => Just(UserRestoresPlaceholder),
        1 => (1..9_u8).prop_map(UserWritesEndpoints),
        1 => Just(UserDisowns),
        1 => (1..9_u8).prop_map(OldRecord),
        2 => any::<bool>().prop_map(EtcdReady),
        1 => (1..9_u8).prop_map(EndpointsChange),
        1 => (1..9_u8).prop_map(CertificateChanges),
        1 => Just(ControlPlaneInitialized),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// [`World::act`] checks each write: a user's pause stays, what was released is not paused again, the client Secret
    /// comes after the endpoints, and no endpoints are written that etcd does not know. This test checks that two
    /// managers, users and etcd reach an end together.
    #[test]
    fn two_managers_and_a_user_come_to_an_end(happenings in proptest::collection::vec(happening(), 0..60)) {
        let mut world = World::applied();
        let mut minds: [Option<(Observation, Step)>; 2] = [None, None];
        let (mut ready, mut endpoints) = (false, ENDPOINTS.to_owned());
        for happening in happenings {
            match happening {
                Happening::Look(manager) => {
                    minds[manager] = match world.plan() {
                        (observation, Plan::Do(step)) => Some((observation, step)),
                        _ => None,
                    };
                }
                Happening::Act(manager) => {
                    if let Some((observation, step)) = minds[manager].take() {
                        world.act(&observation, &step);
                    }
                }
                Happening::Restart(manager) => {
                    minds[manager] = None;
                    world.restart();
                    if let (observation, Plan::Do(step)) = world.plan() {
                        prop_assert!(world.act(&observation, &step));
                    }
                }
                Happening::UserPauses => world.user_pause(),
                Happening::UserUnpauses => world.user_unpause(),
                Happening::UserRestoresPlaceholder => world.user_restores_placeholder(),
                Happening::UserWritesEndpoints(host) => {
                    world.user_writes_endpoints(&[&format!("https://10.0.0.{host}:2379")]);
                }
                Happening::UserDisowns => world.user_annotates(WRITTEN_ENDPOINTS_ANNOTATION, ""),
                Happening::OldRecord(host) => {
                    let endpoints = [format!("https://10.0.0.{host}:2379")];
                    let record = WrittenEndpoints::after(None, &endpoints, &Time(Timestamp::UNIX_EPOCH));
                    world.user_annotates(WRITTEN_ENDPOINTS_ANNOTATION, &record.to_string());
                }
                Happening::EtcdReady(now) => {
                    ready = now;
                    world.set_ready(ready, &endpoints);
                }
                Happening::EndpointsChange(host) => {
                    endpoints = format!("https://10.0.0.{host}:2379");
                    world.set_ready(ready, &endpoints);
                }
                Happening::CertificateChanges(content) => world.stage(&content.to_string()),
                Happening::ControlPlaneInitialized => {
                    if world.published().is_some() && let Some(control_plane) = &mut world.control_plane {
                        control_plane["status"] = json!({"initialized": true});
                    }
                }
            }
        }
        world.stage("last");
        world.set_ready(true, &endpoints);
        world.now += 3600;
        let (_, end) = world.settle();
        prop_assert_eq!(end, Plan::Steady);
        prop_assert_eq!(world.endpoints(), endpoints);
        let published = world.published().unwrap();
        prop_assert_eq!(&published["data"], &world.secrets["demo-managed-etcd-apiserver-client"]["data"]);
        let paused = world.annotations().get(names::PAUSED_ANNOTATION).map(String::as_str) == Some(names::PAUSED_BY_HOOK_VALUE);
        prop_assert!(!paused, "nothing of ours is left on the control plane");
    }

    /// Whenever the Cluster is deleted, etcd is deleted in the end, and nothing of ours blocks the deletion.
    #[test]
    fn a_deletion_at_any_point_comes_to_an_end(steps in 0..6_usize, ready in any::<bool>(), users in any::<bool>()) {
        let mut world = if ready { World::applied().etcd_ready() } else { World::applied() };
        for _ in 0..steps {
            if let (observation, Plan::Do(step)) = world.plan() {
                world.act(&observation, &step);
            }
        }
        if users {
            world.user_pause();
        }
        world.delete_cluster();
        let (_, end) = world.settle();
        prop_assert!(matches!(end, Plan::Wait(hold) if hold.reason == reasons::WAITING_FOR_ETCD_DELETION));
        prop_assert_eq!(world.paused(), users);
    }
}
