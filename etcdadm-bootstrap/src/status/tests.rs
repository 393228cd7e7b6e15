use super::*;
use crate::fixture::ready_to_init;
use api::conditions::is_true;
use controller_support::plan::{block, wait};
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;

#[test]
fn both_contracts_say_that_the_data_is_there() {
    let after = status(&ready_to_init(), &Plan::Steady);
    assert!(after.ready && after.initialization.as_ref().unwrap().data_secret_created);
    assert_eq!(after.data_secret_name.as_deref(), Some("demo-etcd-0"));
    assert_eq!(after.observed_generation, Some(1));
    assert!(is_true(&after.conditions, DATA_SECRET_AVAILABLE) && !is_true(&after.conditions, PAUSED));
}

#[test]
fn what_is_waited_for_stands_in_the_condition() {
    let mut observation = ready_to_init();
    observation.cluster.as_mut().unwrap().paused_by = Some("spec.paused".to_owned());
    let after = status(&observation, &wait(reasons::PAUSED, "why"));
    assert!(!after.ready && after.data_secret_name.is_none());
    let paused = after.conditions.iter().find(|c| c.type_ == PAUSED).unwrap();
    let expected = "Cluster demo is paused by spec.paused: no bootstrap data is created";
    assert_eq!((paused.status.as_str(), paused.message.as_str()), ("True", expected));
    let data = after.conditions.iter().find(|c| c.type_ == DATA_SECRET_AVAILABLE).unwrap();
    assert_eq!((data.status.as_str(), data.reason.as_str(), data.message.as_str()), ("False", "Paused", "why"));
}

#[test]
fn it_is_written_only_when_it_differs() {
    let mut observation = ready_to_init();
    let first = status(&observation, &Plan::Steady);
    assert!(differs(None, &first));
    let mut stored = first.clone();
    stored.conditions.reverse();
    stored.conditions.push(Condition { type_: "Other".to_owned(), ..first.conditions[0].clone() });
    Arc::make_mut(&mut observation.config).status = Some(stored.clone());
    observation.now = Timestamp::from_second(observation.now.as_second() + 60).unwrap();
    let same = status(&observation, &Plan::Steady);
    assert!(!differs(Some(&stored), &same));
    assert!(differs(Some(&stored), &status(&observation, &wait(reasons::PAUSED, ""))));
}

#[test]
fn a_refusal_is_unknown_takes_no_data_back_and_is_written_once() {
    let mut observation = ready_to_init();
    let known = status(&observation, &Plan::Steady);
    let mut stored = known.clone();
    stored.conditions.push(Condition { type_: "Other".to_owned(), ..known.conditions[0].clone() });
    Arc::make_mut(&mut observation.config).status = Some(stored.clone());
    let after = refused(&observation.config, "secrets is forbidden", observation.now);
    assert!(differs(Some(&stored), &after));
    assert!(after.ready && after.data_secret_name == known.data_secret_name);
    let types: Vec<_> = after.conditions.iter().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(types, [DATA_SECRET_AVAILABLE, PAUSED], "all of ours, and none of others");
    let data = &after.conditions[0];
    assert_eq!((data.status.as_str(), data.reason.as_str()), ("Unknown", reasons::REFUSED));
    Arc::make_mut(&mut observation.config).status = Some(after.clone());
    let later = Timestamp::from_second(observation.now.as_second() + 60).unwrap();
    let same = refused(&observation.config, "secrets is forbidden", later);
    assert!(!differs(Some(&after), &same), "the same again is not written");
    assert!(differs(Some(&after), &status(&observation, &Plan::Steady)));
}

#[test]
fn only_other_words_for_what_is_waited_for_can_wait() {
    let mut observation = ready_to_init();
    let waits = |observation: &Observation, plan: Plan| {
        let after = status(observation, &plan);
        can_wait(observation.config.status.as_ref(), &after, &plan)
    };
    let waiting = |message: &str| wait(reasons::WAITING_FOR_MACHINE, message);
    assert!(waits(&observation, waiting("a")), "its Machine is about to be made");
    Arc::make_mut(&mut observation.config).status = Some(status(&observation, &waiting("a")));
    assert!(!waits(&observation, waiting("a")), "there is nothing to write");
    assert!(waits(&observation, waiting("b")));
    assert!(!waits(&observation, block(reasons::INVALID_SPEC, "b")), "a person is to act");
    assert!(!waits(&observation, Plan::Steady), "its Machine waits for the data");
    observation.cluster.as_mut().unwrap().paused_by = Some("spec.paused".to_owned());
    assert!(!waits(&observation, wait(reasons::PAUSED, "b")), "a state has changed");
    Arc::make_mut(&mut observation.config).status = None;
    assert!(!waits(&observation, wait(reasons::PAUSED, "b")), "a state that is not the first one");
}

#[test]
fn a_block_is_told_once() {
    let mut observation = ready_to_init();
    let blocked = |message: &str| block(reasons::INVALID_SPEC, message);
    let plan = blocked("a");
    assert!(newly_blocked(None, &plan).is_some());
    Arc::make_mut(&mut observation.config).status = Some(status(&observation, &plan));
    let before = observation.config.status.as_ref();
    assert!(newly_blocked(before, &plan).is_none());
    assert!(newly_blocked(before, &blocked("b")).is_some());
    assert!(newly_blocked(before, &wait(reasons::PAUSED, "")).is_none());
}

#[test]
fn only_that_something_is_refused_can_wait() {
    let mut observation = ready_to_init();
    let blocked = |message: &str| block(reasons::REFUSED, message);
    let waiting = status(&observation, &wait(reasons::WAITING_FOR_MACHINE, "a"));
    Arc::make_mut(&mut observation.config).status = Some(waiting.clone());
    let of_write = status(&observation, &blocked("quota: used up, request 1"));
    let of_read = refused(&observation.config, "secrets is forbidden", observation.now);
    for after in [&of_write, &of_read] {
        assert!(failure_can_wait(Some(&waiting), after), "it may be over in a moment");
        assert!(!failure_can_wait(Some(after), after), "there is nothing to write");
    }
    let first = refused(&ready_to_init().config, "secrets is forbidden", observation.now);
    assert!(failure_can_wait(None, &first), "nothing else is said");
    assert!(!failure_can_wait(None, &of_write), "that it is not paused is said at once");
    let there = status(&observation, &Plan::Steady);
    assert!(!failure_can_wait(Some(&there), &of_write), "the data is gone");
    assert!(!failure_can_wait(Some(&of_write), &waiting), "it is not refused any more");
}

#[test]
fn a_refusal_that_lasts_is_told_once_whatever_its_words() {
    let mut observation = ready_to_init();
    let blocked = |message: &str| block(reasons::REFUSED, message);
    let plan = blocked("webhook: denied, request 1");
    let first = status(&observation, &plan);
    assert!(newly_blocked(None, &plan).is_some());
    Arc::make_mut(&mut observation.config).status = Some(first.clone());
    let told = |message: &str| {
        let plan = blocked(message);
        let news = newly_blocked(Some(&first), &plan).is_some();
        (differs(Some(&first), &status(&observation, &plan)), news)
    };
    assert_eq!(told("webhook: denied, request 2"), (false, false));
    assert_eq!(told("webhook: not now, request 2"), (true, false), "written, and no second event");
    let of_read = refused(&observation.config, "secrets cannot be listed: request 1", observation.now);
    Arc::make_mut(&mut observation.config).status = Some(of_read.clone());
    let again = |message: &str| differs(Some(&of_read), &refused(&observation.config, message, observation.now));
    assert!(!again("secrets cannot be listed: request 2"));
    assert!(again("machines cannot be listed: request 1"));
}

#[test]
fn the_condition_is_as_it_is_since_its_own_time_and_the_back_off_goes_on() {
    let mut observation = ready_to_init();
    let since = |status: &EtcdadmConfigStatus| status.conditions[0].last_transition_time.0;
    let begun = observation.now;
    Arc::make_mut(&mut observation.config).metadata.creation_timestamp = Some(Time(begun));
    let mut settle = |seconds: i64, plan: Option<&Plan>| {
        observation.now = Timestamp::from_second(begun.as_second() + seconds).unwrap();
        let after = match plan {
            Some(plan) => status(&observation, plan),
            None => refused(&observation.config, "secrets is forbidden", observation.now),
        };
        Arc::make_mut(&mut observation.config).status = Some(after.clone());
        (since(&after).as_second() - begun.as_second(), observation.age().as_secs())
    };
    let waiting = wait(reasons::WAITING_FOR_FILE_SECRET, "");
    assert_eq!(settle(0, Some(&waiting)), (0, 0));
    assert_eq!(settle(30, Some(&waiting)), (0, 30));
    assert_eq!(settle(60, None), (60, 60), "it is not known");
    assert_eq!(settle(120, Some(&waiting)), (120, 120), "the back-off goes on");
    assert_eq!(settle(180, Some(&Plan::Steady)), (180, 180));
}
