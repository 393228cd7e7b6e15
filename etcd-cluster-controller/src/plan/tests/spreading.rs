//! Members in failure domains, as stories.

use super::leaves;
use crate::fixture::{Story, address, name};
use crate::plan::{Plan, Step, WhyDeleted};
use crate::roster::number;
use api::names;
use proptest::prelude::*;

/// The Cluster has these failure domains.
fn domains(story: &mut Story, domains: &[&str]) {
    story.cluster().failure_domains = domains.iter().map(|domain| (*domain).to_owned()).collect();
}

/// A cluster of healthy voters, each in its failure domain. The Cluster has the domains that these voters are in.
fn placed(places: &[&str]) -> Story {
    let mut story = Story::with_voters(i32::try_from(places.len()).unwrap(), places.len());
    domains(&mut story, places);
    for (index, domain) in places.iter().enumerate() {
        place(&mut story, index, Some(domain));
    }
    story
}

fn place(story: &mut Story, index: usize, domain: Option<&str>) {
    story.observation.machines.get_mut(&name(index)).unwrap().failure_domain = domain.map(str::to_owned);
}

fn annotate(story: &mut Story, index: usize, key: &str) {
    let machine = story.observation.machines.get_mut(&name(index)).unwrap();
    machine.annotations.insert(key.to_owned(), String::new());
}

fn index_of(machine: &str) -> usize {
    number(machine).and_then(|number| usize::try_from(number).ok()).unwrap()
}

/// Creates all Machines that are to be created now, admits those that may join side by side, and returns their failure
/// domains.
fn made(story: &mut Story) -> Vec<Option<String>> {
    let mut places = Vec::new();
    loop {
        match story.plan() {
            Plan::Do(Step::CreateMachine { number, failure_domain, .. }) => {
                let index = usize::try_from(number).unwrap();
                let first = story.observation.machines.is_empty();
                story.held_back(index);
                place(story, index, failure_domain.as_deref());
                if first {
                    story.bootstrap(index);
                }
                places.push(failure_domain);
            }
            Plan::Do(Step::Admit { name, .. }) => story.admit(index_of(&name)),
            _ => return places,
        }
    }
}

fn somewhere(places: &[&str]) -> Vec<Option<String>> {
    places.iter().map(|place| Some((*place).to_owned())).collect()
}

/// Deletes all surplus Machines one after the other, and returns their indices.
fn surplus(story: &mut Story) -> Vec<usize> {
    let mut deleted = Vec::new();
    while let Plan::Do(Step::DeleteMachine { name, why: WhyDeleted::Surplus }) = story.plan() {
        story.delete(index_of(&name));
        deleted.push(index_of(&name));
    }
    deleted
}

/// The spec changes, while API servers use all present members.
fn rolls(story: &mut Story) {
    let urls: Vec<String> = (0..story.observation.machines.len()).map(|i| names::client_url(&address(i))).collect();
    story.settle();
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &urls.join(","));
    edit(story);
}

fn edit(story: &mut Story) {
    story.etcd().spec.etcdadm_config_spec.version = Some("3.6.17".to_owned());
    story.annotate(names::PINNED_VERSION_ANNOTATION, "3.6.17");
    story.settle();
}

#[test]
fn new_members_go_where_the_fewest_are() {
    for (reported, replicas, expected) in [
        (vec!["c", "b", "a"], 3, somewhere(&["a", "b", "c"])),
        (vec!["a", "b"], 3, somewhere(&["a", "b", "a"])),
        (vec!["a", "b", "c"], 5, somewhere(&["a", "b", "c", "a", "b"])),
        (vec!["only"], 3, somewhere(&["only", "only", "only"])),
        (vec![], 3, vec![None, None, None]),
    ] {
        let mut story = Story::new(replicas);
        domains(&mut story, &reported);
        assert_eq!(made(&mut story), expected, "{reported:?}");
    }
}

#[test]
fn a_cluster_that_grows_fills_the_gaps() {
    let mut story = placed(&["a", "a", "b"]);
    domains(&mut story, &["a", "b", "c"]);
    story.etcd().spec.replicas = 5;
    assert_eq!(made(&mut story), somewhere(&["c", "b"]));
}

#[test]
fn a_replacement_comes_where_the_member_was_that_it_replaces() {
    let places = ["a", "b", "c"];
    for index in [1, 2] {
        let mut story = placed(&places);
        story.failing(index, "down");
        story.pass(60);
        assert!(matches!(story.plan(), Plan::Do(Step::BeginRemediation(_))), "{:?}", story.plan());
        story.settle();
        assert_eq!(made(&mut story), somewhere(&[places[index]]), "the voter of {index} has failed");
    }
    for index in 0..3 {
        let mut story = placed(&places);
        story.delete(index);
        story.settle();
        assert_eq!(made(&mut story), somewhere(&[places[index]]), "the Machine of {index} was deleted");
    }
}

#[test]
fn one_that_is_held_back_is_made_again_in_its_place() {
    let mut story = Story::new(3);
    domains(&mut story, &["a", "b", "c"]);
    assert_eq!(made(&mut story).len(), 3);
    story.etcd().spec.etcdadm_config_spec.pre_etcdadm_commands = vec!["true".to_owned()];
    let plan = story.plan();
    assert!(matches!(&plan, Plan::Do(Step::DeleteHeldBack { name: old, .. }) if *old == name(1)), "{plan:?}");
    story.gone(1);
    assert!(matches!(story.plan(), Plan::Do(Step::DeleteHeldBack { .. })), "{:?}", story.plan());
    story.gone(2);
    assert_eq!(made(&mut story), somewhere(&["b", "c"]));
}

#[test]
fn a_rollout_spreads_the_new_members_among_themselves() {
    let mut story = placed(&["a", "b", "c"]);
    rolls(&mut story);
    assert_eq!(made(&mut story), somewhere(&["a", "b", "c"]));
    let mut story = placed(&["a", "b", "a"]);
    rolls(&mut story);
    assert_eq!(made(&mut story), somewhere(&["b", "a", "b"]), "where the old ones are fewer first");
}

#[test]
fn a_rollout_of_one_after_the_other_keeps_the_spread() {
    let mut story = placed(&["a", "b", "c"]);
    edit(&mut story);
    let mut places = Vec::new();
    for (new, old) in [(3, 1), (4, 2), (5, 0)] {
        places.extend(made(&mut story));
        story.bootstrap(new);
        story.address(new);
        story.voter(new);
        story.publish();
        story.settle();
        let plan = story.plan();
        assert!(matches!(&plan, Plan::Do(Step::DeleteMachine { name: gone, .. }) if *gone == name(old)), "{plan:?}");
        story.delete(old);
        story.settle();
        if old != 0 {
            leaves(&mut story, old);
        }
    }
    assert_eq!(places, somewhere(&["a", "b", "c"]));
}

#[test]
fn whoever_shares_a_domain_with_most_others_goes_first() {
    for (places, expected, why) in [
        (["a", "a", "a", "b", "c"], [2, 1], "though the others are newer"),
        (["a", "b", "c", "a", "b"], [4, 3], "of those that share as much, the newest"),
        (["a", "b", "b", "c", "c"], [4, 2], "one of each"),
        (["a", "a", "a", "a", "a"], [4, 3], "all the same"),
    ] {
        let mut story = placed(&places);
        story.etcd().spec.replicas = 3;
        assert_eq!(surplus(&mut story), expected, "{why}");
    }
}

#[test]
fn a_choice_and_a_failure_count_more_than_a_domain() {
    let places = ["a", "a", "a", "b", "c"];
    let mut story = placed(&places);
    story.etcd().spec.replicas = 3;
    annotate(&mut story, 3, names::DELETE_MACHINE_ANNOTATION);
    assert_eq!(surplus(&mut story), [3, 2]);
    let mut story = placed(&places);
    story.etcd().spec.replicas = 3;
    story.failing(4, "down");
    story.pass(60);
    assert_eq!(surplus(&mut story), [4, 2]);
}

proptest! {
    /// API servers that have not rolled out since there was one member may use that member alone.
    #[test]
    fn the_oldest_is_the_last_to_go(
        places in prop::collection::vec(prop::option::of(prop::sample::select(vec!["a", "b", "c"])), 7),
        paused in prop::collection::vec(any::<bool>(), 7),
        replicas in prop::sample::select(vec![1, 3, 5]),
    ) {
        let mut story = placed(&["a"; 7]);
        for index in 0..7 {
            place(&mut story, index, places[index]);
            if paused[index] {
                annotate(&mut story, index, names::PAUSED_ANNOTATION);
            }
        }
        story.etcd().spec.replicas = replicas;
        let deleted = surplus(&mut story);
        let free: Vec<usize> = (0..7).filter(|index| !paused[*index]).collect();
        prop_assert_eq!(deleted.len(), free.len().min(7 - usize::try_from(replicas).unwrap()));
        if let Some(oldest) = free.first() {
            prop_assert!(deleted.len() == free.len() || !deleted.contains(oldest), "{:?}", deleted);
        }
    }
}

#[test]
fn a_domain_that_vanishes_disturbs_nobody() {
    let mut story = placed(&["a", "b", "c"]);
    domains(&mut story, &["a", "b"]);
    assert_eq!(story.plan(), Plan::Steady);
    story.etcd().spec.replicas = 5;
    assert_eq!(made(&mut story), somewhere(&["a", "b"]), "it gets no new members");
    let mut story = placed(&["a", "b", "c"]);
    domains(&mut story, &[]);
    assert_eq!(story.plan(), Plan::Steady);
}

#[test]
fn the_status_says_where_each_member_is() {
    let mut story = placed(&["a", "b", "c"]);
    place(&mut story, 2, None);
    story.settle();
    story.gone(1);
    let members = story.settle().members;
    let places: Vec<&str> = members.iter().map(|member| member.failure_domain.as_str()).collect();
    assert_eq!(places, ["a", "b", ""], "the one whose Machine is gone was in b");
}

#[test]
fn what_the_infrastructure_reports_counts_until_the_cluster_has_it() {
    let mut story = Story::new(3);
    story.cluster().infrastructure_ready = false;
    story.observation.reported_domains = Some(["a".to_owned(), "b".to_owned()].into());
    let domain = |story: &Story| match story.plan() {
        Plan::Do(Step::CreateMachine { failure_domain, .. }) => failure_domain,
        plan => panic!("{plan:?}"),
    };
    assert_eq!(domain(&story).as_deref(), Some("a"));
    story.cluster().infrastructure_ready = true;
    assert_eq!(domain(&story), None, "the Cluster's word counts");
}
