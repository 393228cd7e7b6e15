//! Machines join beside strangers, if a person says so.

use super::*;

#[test]
fn beside_members_that_a_person_names_others_join_until_etcd_can_do_without_them() {
    let mut story = abandoned(answers);
    is_told(&mut story, &["The others have no quorum", "etcdcluster.cluster.x-k8s.io/admit-beside=100,101,102"]);
    story.annotate(names::ADMIT_BESIDE_ANNOTATION, "100, 101,102");
    for new in 3..6 {
        let plan = step(&mut story);
        assert!(matches!(plan, Plan::Do(Step::CreateMachine { number, .. }) if number == new as u64), "{plan:?}");
        story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, &new.to_string());
        story.held_back(new);
        let plan = step(&mut story);
        assert!(matches!(&plan, Plan::Do(Step::Admit { name: next, .. }) if *next == name(new)), "{plan:?}");
        story.admit(new);
        story.machine(new);
        story.address(new);
        story.bootstrap(new);
        story.voter(new);
        story.publish();
    }
    // Three of six voters are known to be well. Without one of the strangers, they are a quorum. The first stranger
    // leads, so another one goes.
    let plan = step(&mut story);
    assert!(begins(&plan, OperationKind::RemoveMember, id(1)), "{plan:?}");
}

/// The Machines went one after the other, and the manager has seen each of them go.
#[test]
fn new_members_are_told_of_every_member_that_they_can_ask() {
    let mut story = Story::with_voters(3, 3);
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, "2");
    for index in [1, 2, 0] {
        story.gone(index);
        story.probe_stranger(index, answers(index));
        is_told(&mut story, &["it answers at"]);
    }
    let told = |story: &Story| match story.plan() {
        Plan::Do(Step::PublishInit { address, client_urls, .. }) => (address, client_urls),
        other => panic!("{other:?}"),
    };
    // A person has removed the one whose machine was destroyed.
    story.unlist(0);
    let both = "https://10.0.0.2:2379,https://10.0.0.3:2379".to_owned();
    assert_eq!(told(&story), (address(1), both.clone()));
    story.observation.init_urls = None;
    assert_eq!(told(&story), (address(1), both), "the Secret was lost");
}

#[test]
fn nothing_joins_beside_one_that_is_not_named_or_does_not_answer_or_whose_data_may_be_wrong() {
    let mut named = abandoned(answers);
    named.annotate(names::ADMIT_BESIDE_ANNOTATION, "100,101,102");
    assert!(matches!(named.plan(), Plan::Do(Step::CreateMachine { .. })), "{:?}", named.plan());
    let mut silent = named.clone();
    silent.probe_stranger(1, refused());
    is_told(&mut silent, &["member 101", "and its checks fail"]);
    let mut unlisted = named.clone();
    unlisted.unlisted();
    assert_eq!(reason(&unlisted.plan()), reasons::QUORUM_LOST, "{:?}", unlisted.plan());
    let mut other = named;
    other.annotate(names::ADMIT_BESIDE_ANNOTATION, "100,101,1");
    is_told(&mut other, &["member 102", "admit-beside=100,101,102"]);
    let mut corrupt = abandoned(|index| {
        let alarms = vec![Alarm { member_id: 0, kind: "CORRUPT".to_owned() }];
        let report = Report { leader: id(0), alarms, ..Report::of_one_that_is_well(CLUSTER_ID, id(index)) };
        Outcome::Answered(report)
    });
    corrupt.annotate(names::ADMIT_BESIDE_ANNOTATION, "100,101,102");
    assert_eq!(reason(&corrupt.plan()), reasons::DATA_CORRUPT, "{:?}", corrupt.plan());
}
