use super::*;
use crate::model::World;
use crate::plan::plan;
use serde_json::json;

fn reported(world: &mut World, since_write: Option<Duration>) -> Report {
    world.settle();
    let seen = world.observe();
    report(&seen, &plan(&seen), since_write)
}

fn write(world: &mut World, report: &Report) -> Condition {
    let Report::Write(condition) = report else { panic!("{report:?}") };
    let body = crate::build::status::condition(&world.observe().cluster, Some(condition));
    world.cluster["status"] = body["status"].clone();
    condition.clone()
}

#[test]
fn the_condition_follows_and_is_written_only_when_it_differs() {
    let mut world = World::applied();
    let first = reported(&mut world, None);
    let condition = write(&mut world, &first);
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", reasons::WAITING_FOR_ETCD));
    assert_eq!(reported(&mut world, None), Report::Nothing);

    let mut world = world.etcd_ready();
    let second = reported(&mut world, Some(Duration::ZERO));
    let condition = write(&mut world, &second);
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("True", reasons::READY));
    assert_eq!(reported(&mut world, None), Report::Nothing);
}

#[test]
fn a_new_message_alone_can_wait() {
    let mut world = World::applied();
    let first = reported(&mut world, None);
    write(&mut world, &first);
    world.set_ready(false, "");
    assert_eq!(reported(&mut world, Some(Duration::from_secs(2))), Report::Later(Duration::from_secs(3)));
    assert!(matches!(reported(&mut world, Some(MESSAGES)), Report::Write(_)));
    assert!(
        matches!(reported(&mut world, None), Report::Write(c) if c.message == "EtcdCluster demo-etcd is not ready: ScalingUp: 1 of 3")
    );
}

#[test]
fn a_paused_cluster_and_one_that_is_nearly_gone_are_not_written_to() {
    let mut world = World::applied();
    world.cluster["spec"]["paused"] = json!(true);
    assert_eq!(reported(&mut world, None), Report::Nothing);
    let mut world = World::applied();
    world.delete_cluster();
    assert!(matches!(reported(&mut world, None), Report::Write(c) if c.reason == reasons::WAITING_FOR_ETCD_DELETION));
    world.etcd = None;
    assert_eq!(reported(&mut world, None), Report::Nothing);
}

#[test]
fn a_pause_of_the_users_is_mentioned() {
    let mut world = World::applied().etcd_ready();
    world.user_pause();
    assert!(
        matches!(reported(&mut world, None), Report::Write(c) if c.status == "True" && c.message.contains("paused by its user"))
    );
}
