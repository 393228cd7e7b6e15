use super::*;
use crate::fixture::{ENDPOINTS, World};
use crate::observation::Used;
use api::endpoints::{EndpointLists, parse_list};
use serde_json::json;

fn reported(world: &mut World, since_write: Option<Duration>) -> Update {
    world.settle();
    let (observation, plan) = world.plan();
    report(&observation, &plan, since_write)
}

fn write(world: &mut World, report: &Update) -> Condition {
    let Update::Write(condition) = report else { panic!("{report:?}") };
    let body = crate::build::status::condition(&world.observe().cluster, condition);
    world.cluster["status"] = body["status"].clone();
    condition.clone()
}

#[test]
fn the_condition_follows_and_is_written_only_when_it_differs() {
    let mut world = World::applied();
    world.settle();
    let condition = world.observe().cluster.condition.expect("it is announced before the pause");
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", reasons::WAITING_FOR_ETCD));
    assert_eq!(reported(&mut world, None), Update::Nothing, "and need not be written twice");

    let mut world = world.etcd_ready();
    let second = reported(&mut world, Some(Duration::ZERO));
    let condition = write(&mut world, &second);
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("True", reasons::READY));
    assert_eq!(reported(&mut world, None), Update::Nothing);
}

#[test]
fn a_pause_says_what_it_is_for() {
    let mut world = World::applied();
    let note = |world: &World| {
        let observation = world.observe();
        pause_note(&observation, observation.found_control_plane().unwrap())
    };
    assert_eq!(note(&world), "KubeadmControlPlane demo-cp is paused until etcd is ready and handed over");
    world = world.etcd_ready();
    world.settle();
    let note = note(&world);
    let due = world.observe().written.as_ref().unwrap().due();
    assert!(note.contains("others overwrite its etcd endpoints") && note.ends_with(&format!("{due:.0}")), "{note}");
}

#[test]
fn only_the_first_word_of_what_is_missing_can_wait() {
    let mut world = World::applied();
    let hold = || Hold::new(reasons::ETCD_NOT_FOUND, "");
    let before = world.observe().cluster;
    assert!(before.condition.is_none(), "nothing is said yet");
    assert!(can_wait(&before, &Plan::Wait(hold())));
    assert!(!can_wait(&before, &Plan::Block(hold())), "a person is to act");
    assert!(!can_wait(&before, &Plan::Steady));
    world.delete_cluster();
    assert!(!can_wait(&world.observe().cluster, &Plan::Wait(hold())), "etcd may be gone a moment later");
    let mut world = World::applied();
    world.settle();
    assert!(!can_wait(&world.observe().cluster, &Plan::Wait(hold())), "it has been said before");
}

#[test]
fn a_new_message_alone_can_wait() {
    let mut world = World::applied();
    world.settle();
    world.set_ready(false, "");
    assert_eq!(reported(&mut world, Some(Duration::from_secs(2))), Update::Later(Duration::from_secs(8)));
    assert!(matches!(reported(&mut world, Some(MESSAGES)), Update::Write(_)));
    assert!(
        matches!(reported(&mut world, None), Update::Write(c) if c.message == "EtcdCluster demo-etcd is not ready: ScalingUp: 1 of 3")
    );
}

#[test]
fn etcd_that_grows_is_no_alarm_as_long_as_it_serves() {
    let mut world = World::applied().etcd_ready();
    let handed_over = reported(&mut world, None);
    write(&mut world, &handed_over);
    let serving = |world: &mut World, endpoints: &str| {
        world.set_ready(false, endpoints);
        let conditions = world.etcd.as_mut().unwrap()["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(json!({"type": "Available", "status": "True"}));
    };
    let given = world.endpoints();
    serving(&mut world, &format!("{given},https://10.0.0.9:2379"));
    let Update::Write(condition) = reported(&mut world, None) else { panic!("nothing is said") };
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("True", reasons::AVAILABLE));
    assert!(condition.message.starts_with("EtcdCluster demo-etcd is not ready: ScalingUp"), "{}", condition.message);
    assert!(!world.paused() && world.endpoints() == given, "and nothing is done");

    let reason = |world: &mut World| {
        let said = match reported(world, None) {
            Update::Write(condition) => Some(condition),
            _ => world.observe().cluster.condition,
        };
        said.map(|condition| format!("{} {}", condition.status, condition.reason)).unwrap_or_default()
    };
    serving(&mut world, "https://10.0.0.9:2379");
    assert_eq!(reason(&mut world), "False WaitingForEtcd", "nobody answers at the endpoints that it has");
    world.set_ready(false, &given);
    assert_eq!(reason(&mut world), "False WaitingForEtcd", "there is no quorum");
    let mut world = World::applied();
    let endpoints = "https://10.0.0.1:2379";
    serving(&mut world, endpoints);
    assert_eq!(reason(&mut world), "False WaitingForEtcd", "it has not been handed over");
}

#[test]
fn a_paused_cluster_is_not_written_to_and_one_that_goes_says_what_it_is_at() {
    let mut world = World::applied();
    world.cluster["spec"]["paused"] = json!(true);
    assert_eq!(reported(&mut world, None), Update::Nothing);
    let mut world = World::applied();
    world.delete_cluster();
    assert!(matches!(reported(&mut world, None), Update::Write(c) if c.reason == reasons::WAITING_FOR_ETCD_DELETION));
    world.etcd = None;
    assert!(matches!(reported(&mut world, None), Update::Write(c) if c.reason == reasons::ETCD_DELETED));
}

#[test]
fn a_pause_of_the_users_is_mentioned_at_once() {
    let mut world = World::applied().etcd_ready();
    let handed_over = reported(&mut world, None);
    write(&mut world, &handed_over);
    world.user_pause();
    let paused = reported(&mut world, Some(Duration::ZERO));
    let condition = write(&mut world, &paused);
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("True", reasons::READY));
    assert_eq!(condition.message, "etcd has been handed over; the control plane is paused by its user");
}

#[test]
fn a_rollout_is_told_until_it_is_done_whatever_else_is_waited_for() {
    let says = |world: &mut World| match reported(world, None) {
        Update::Write(c) => format!("{} {} {}", c.status, c.reason, c.message),
        other => format!("{other:?}"),
    };
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.report_machines(world.generation(), 3, 3);
    assert_eq!(says(&mut world), "True Ready ");
    world.set_ready(true, "https://10.0.0.1:2379");
    let rest = "; until that is done, API servers may still use https://10.0.0.2:2379, https://10.0.0.3:2379";
    let begin = "True ControlPlaneRollingOut KubeadmControlPlane demo-cp replaces its machines";
    assert_eq!(says(&mut world), format!("{begin} (it has not reported on them yet){rest}"));
    world.report_machines(world.generation(), 4, 1);
    assert_eq!(says(&mut world), format!("{begin} (1 of 4 are up to date){rest}"));
    world.set_ready(false, "https://10.0.0.1:2379");
    let begin =
        "False WaitingForEtcd EtcdCluster demo-etcd is not ready: ScalingUp: 1 of 3; KubeadmControlPlane demo-cp";
    assert_eq!(says(&mut world), format!("{begin} replaces its machines (1 of 4 are up to date){rest}"));
    world.set_ready(true, "https://10.0.0.1:2379");
    world.report_machines(world.generation(), 3, 3);
    assert_eq!(says(&mut world), "True Ready ");
}

#[test]
fn what_further_machines_would_join_with_is_told() {
    let one = "https://10.0.0.1:2379";
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.set_ready(true, one);
    world.settle();
    world.report_machines(world.generation(), 3, 3);
    world.used = Used::These(EndpointLists::parse(one));
    let mut says = |joining: Joining| {
        world.joining = Some(joining);
        match reported(&mut world, None) {
            Update::Write(c) => format!("{} {} {}", c.status, c.reason, c.message),
            other => format!("{other:?}"),
        }
    };
    let begin = "True ControlPlaneRollingOut KubeadmControlPlane demo-cp has replaced its machines, and ";
    let rest = ". API servers may still use https://10.0.0.2:2379, https://10.0.0.3:2379";
    let unknown = says(Joining::Unknown("its API server does not answer".to_owned()));
    let way_out = ". If this lasts, and no API server needs these endpoints, set annotation etcdcluster.cluster.x-k8s.io/ignore-endpoints-in-use of EtcdCluster demo-etcd to the value of its metadata.generation";
    assert!(unknown.starts_with(begin) && unknown.ends_with(&format!("does not answer{rest}{way_out}")), "{unknown}");
    let old = says(Joining::With(parse_list(ENDPOINTS)));
    let would = format!("{begin}another one would join with {}, ", ENDPOINTS.replace(',', ", "));
    assert!(old.starts_with(&would) && old.contains("once more") && old.ends_with(rest), "{old}");
    let none = says(Joining::WithNone);
    assert!(none.starts_with(begin) && none.contains("placeholder: roll") && none.ends_with(rest), "{none}");
    assert_eq!(says(Joining::With(parse_list(one))), "True Ready ");
}

#[test]
fn a_record_that_is_lost_and_cannot_be_made_again_is_told() {
    let mut world = World::applied().etcd_ready();
    world.settle();
    world.report_machines(world.generation(), 3, 3);
    world.lose_record();
    let says = |world: &mut World| match reported(world, None) {
        Update::Write(c) => format!("{} {} {}", c.status, c.reason, c.message),
        other => format!("{other:?}"),
    };
    let begin = "True ControlPlaneRollingOut it is not known which endpoints the API servers of KubeadmControlPlane demo-cp use, because annotation etcdcluster.cluster.x-k8s.io/endpoints-in-use of EtcdCluster demo-etcd is missing, and ";
    let end = "Until it is known, the old members stay";
    world.used = Used::Unknown;
    let unknown = says(&mut world);
    assert_eq!(unknown, format!("{begin}its machines do not show it yet (3 of 3 are up to date). {end}"));
    world.used = Used::These(EndpointLists::parse(ENDPOINTS));
    world.joining = Some(Joining::WithNone);
    let none = says(&mut world);
    assert!(none.starts_with(begin) && none.contains("placeholder: roll") && none.ends_with(end), "{none}");
    world.joining = Some(Joining::Unknown("its API server does not answer".to_owned()));
    let unread = says(&mut world);
    assert!(unread.starts_with(begin) && unread.contains(end) && unread.contains("If this lasts"), "{unread}");
    world.joining = Some(Joining::With(parse_list(ENDPOINTS)));
    assert_eq!(says(&mut world), "True Ready ");
    assert_eq!(world.in_use(), Some(ENDPOINTS), "it is made again");
}

#[test]
fn what_is_refused_to_us_is_unknown_and_nobodys_fault() {
    let mut world = World::applied().etcd_ready();
    let handed_over = reported(&mut world, None);
    write(&mut world, &handed_over);
    let refused = "creating demo-apiserver-etcd-client: secrets is forbidden".to_owned();
    let now = world.observe().now;
    let Update::Write(condition) = failure(&world.observe().cluster, refused.clone(), &now, None) else {
        panic!("it stays True")
    };
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("Unknown", reasons::REFUSED));
    write(&mut world, &Update::Write(condition));
    assert_eq!(failure(&world.observe().cluster, refused.clone(), &now, None), Update::Nothing, "it is said once");
    let told = |world: &World, words: &str, since: Option<u64>| {
        let message = format!("creating a-1: webhook denied {words}");
        failure(&world.observe().cluster, message, &now, since.map(Duration::from_secs))
    };
    let other = told(&world, "request 1", None);
    write(&mut world, &other);
    assert_eq!(told(&world, "request 2", None), Update::Nothing, "another number is not news");
    assert_eq!(told(&world, "it for now", Some(4)), Update::Later(Duration::from_secs(6)));
    assert!(matches!(told(&world, "it for now", Some(10)), Update::Write(_)), "other words are, later");
    world.cluster["spec"]["paused"] = json!(true);
    assert_eq!(failure(&world.observe().cluster, "else".to_owned(), &now, None), Update::Nothing);
    let mut stranger = World::applied();
    stranger.cluster["metadata"]["annotations"] = json!({});
    assert_eq!(failure(&stranger.observe().cluster, refused, &now, None), Update::Nothing);
}

#[test]
fn numbers_are_news_in_what_we_say_and_not_in_what_the_api_server_answers() {
    let mut world = World::applied().etcd_ready();
    let told = |world: &World, hold: Hold| report(&world.observe(), &Plan::Block(hold), None);
    let of_class = |endpoints: &str| {
        let message = format!("a ClusterClass manages it, and cannot know them: have an extension write {endpoints}");
        Hold::new(reasons::CONTROL_PLANE_INVALID, message)
    };
    let first = told(&world, of_class(ENDPOINTS));
    write(&mut world, &first);
    let others = ENDPOINTS.replace("10.0.0.3", "10.0.0.4");
    let Update::Write(said) = told(&world, of_class(&others)) else { panic!("it names those of before for good") };
    assert!(said.message.ends_with(&others), "{}", said.message);

    let of_answer = |world: &World, answer: &str| {
        let refusal = format!("KubeadmControlPlane demo-cp cannot be changed: {answer}");
        refused(&world.observe().cluster, &refusal)
    };
    let first = told(&world, of_answer(&world, "webhook denied request 1"));
    let said = write(&mut world, &first);
    assert_eq!((said.status.as_str(), said.reason.as_str()), ("False", reasons::CONTROL_PLANE_INVALID));
    let again = told(&world, of_answer(&world, "webhook denied request 2"));
    assert_eq!(again, Update::Nothing, "it is the same refusal");
    assert!(matches!(told(&world, of_answer(&world, "webhook is away")), Update::Write(_)), "another one is told");
}
