//! What the status reports about etcd's alarms.

use super::{condition, shows};
use crate::fixture::Story;
use crate::plan::Plan;
use crate::status::transitions::transitions;
use api::conditions::{self as c, reasons};

#[test]
fn an_alarm_is_said_with_its_remedy_and_blames_nobody() {
    for (kind, reason, cause) in [("NOSPACE", reasons::NO_SPACE, "quota"), ("CORRUPT", reasons::DATA_CORRUPT, "hashkv")]
    {
        let mut story = Story::with_voters(3, 3);
        let before = story.settle();
        assert_eq!(shows(&before, c::NO_ALARMS), ("True".to_owned(), reasons::NO_ALARMS.to_owned()));
        story.alarms(&[(1, kind)]);
        let raised = story.settle();
        for type_ in [c::NO_ALARMS, c::AVAILABLE] {
            assert_eq!(shows(&raised, type_), ("False".to_owned(), reason.to_owned()), "etcd refuses writes");
        }
        let message = &condition(&raised, c::NO_ALARMS).message;
        let named = format!("alarm {kind} of member demo-etcd-1 (101, https://10.0.0.2:2379)");
        assert!(message.contains(&named), "{message}");
        assert!(message.contains(cause) && message.contains("etcdctl alarm disarm"), "{message}");
        assert_eq!(condition(&raised, c::READY).message, *message, "people look there first");
        let told: Vec<_> = transitions(&before, &raised).into_iter().map(|t| (t.warning, t.reason, t.note)).collect();
        assert_eq!(told, [(true, reason, message.clone())], "one event");
        assert!(raised.ready, "the endpoints are what they were");
        assert_eq!(shows(&raised, c::MEMBERS_HEALTHY).0, "True");
        assert_eq!(raised.members, before.members, "nobody is blamed");
        assert!(matches!(story.plan(), Plan::Steady), "{:?}", story.plan());
        story.pass(86_400);
        assert_eq!(story.settle(), raised, "it is told once");
        story.alarms(&[]);
        let over = story.settle();
        assert_eq!(shows(&over, c::AVAILABLE).0, "True");
        assert_eq!(shows(&over, c::NO_ALARMS).0, "True");
        assert!(condition(&over, c::READY).message.is_empty());
    }
}

#[test]
fn alarms_are_known_as_long_as_a_voter_answers() {
    let mut story = Story::with_voters(3, 3);
    story.alarms(&[(0, "NOSPACE"), (1, "NOSPACE"), (2, "CORRUPT")]);
    let both = story.settle();
    assert_eq!(shows(&both, c::NO_ALARMS).1, reasons::DATA_CORRUPT, "the worse one");
    let message = condition(&both, c::NO_ALARMS).message.clone();
    assert!(message.contains("demo-etcd-0 (100") && message.contains("demo-etcd-1 (101"), "{message}");
    story.failing(0, "down");
    story.failing(1, "down");
    assert_eq!(shows(&story.settle(), c::NO_ALARMS).0, "False", "the third still says so");
    story.failing(2, "down");
    let nobody = story.settle();
    assert_eq!(shows(&nobody, c::NO_ALARMS), ("Unknown".to_owned(), reasons::HEALTH_UNKNOWN.to_owned()));
    let message = &condition(&nobody, c::NO_ALARMS).message;
    let first = "no voter has answered as a voter, so etcd's alarms are not known: demo-etcd-0: ";
    assert!(message.starts_with(first), "{message}");
    let last =
        "demo-etcd-2: https://10.0.0.3:2379: connection closed without an answer: down (since 1970-01-01T00:16:40Z)";
    assert!(message.ends_with(last), "which address, why, and since when: {message}");
    story.pass(30);
    assert_eq!(condition(&story.settle(), c::NO_ALARMS).message, *message, "it says the same as time passes");
    let new = Story::new(1).settle();
    let message = &condition(&new, c::NO_ALARMS).message;
    assert_eq!(message, "etcd's alarms are not known before there is a voter that reports them");
    let mut strange = Story::with_voters(1, 1);
    strange.alarms(&[(7, "OVERSLEPT")]);
    let strange = strange.settle();
    assert_eq!(shows(&strange, c::NO_ALARMS).1, reasons::ALARM_RAISED);
    assert_eq!(shows(&strange, c::AVAILABLE).0, "True", "not every alarm stops writes");
}
