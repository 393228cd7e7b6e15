//! The same over IPv6: an address stands in brackets in a URL, and without them everywhere else.

use crate::fixture::{Story, id, name};
use crate::observation::{Member, Membership};
use crate::plan::in_use::InUse;
use crate::plan::{Plan, Step, View};
use api::names;

fn address(index: usize) -> String {
    format!("fd00::{}", index + 1)
}

fn client_url(index: usize) -> String {
    format!("https://[{}]:2379", address(index))
}

fn peer_url(index: usize) -> String {
    format!("https://[{}]:2380", address(index))
}

fn client_urls() -> String {
    [0, 1, 2].map(client_url).join(",")
}

/// Three voters, on Machines that have a host name and an IPv6 address.
fn voters() -> Story {
    let mut story = Story::with_voters(3, 3);
    let observation = &mut story.observation;
    for index in 0..3 {
        let machine = observation.machines.get_mut(&name(index)).unwrap();
        machine.addresses = vec![("Hostname".to_owned(), name(index)), ("InternalIP".to_owned(), address(index))];
        observation.probes.get_mut(&name(index)).unwrap().url = client_url(index);
        let Membership::Known { members, .. } = &mut observation.membership else { panic!("no member list") };
        let member = members.get_mut(&id(index)).unwrap();
        (member.peer_urls, member.client_urls) = (vec![peer_url(index)], vec![client_url(index)]);
    }
    story.etcd().status = None;
    story.publish();
    story.settle();
    story
}

#[test]
fn endpoints_and_members_are_told_with_brackets() {
    let mut story = voters();
    assert_eq!(story.plan(), Plan::Steady);
    let status = story.settle();
    assert!(status.ready, "{:?}", status.conditions);
    assert_eq!(status.endpoints, client_urls());
    let told: Vec<_> = status.members.into_iter().map(|member| (member.peer_url, member.client_url)).collect();
    assert_eq!(told, [0, 1, 2].map(|index| (peer_url(index), client_url(index))));
}

/// The init Secret has the address of one voter as Kubernetes writes it, and the client URLs of all of them.
#[test]
fn joining_members_find_the_voters() {
    let mut story = voters();
    story.observation.init_urls = Some(client_url(8));
    let plan = story.plan();
    let Plan::Do(Step::PublishInit { address: one, client_urls: urls, .. }) = &plan else { panic!("{plan:?}") };
    assert!([0, 1, 2].map(address).contains(one), "{one}");
    assert_eq!(*urls, client_urls());
}

#[test]
fn a_members_machine_is_found_by_its_address_however_that_is_written() {
    let story = voters();
    for host in ["fd00::2", "fd00:0:0:0:0:0:0:2", "FD00::0002"] {
        let member = Member {
            name: "host-7".to_owned(),
            peer_urls: vec![format!("https://[{host}]:2380")],
            client_urls: Vec::new(),
            learner: false,
        };
        let machine = story.observation.machine_of(0x999, &member).map(|machine| machine.name.as_str());
        assert_eq!(machine, Some(name(1).as_str()), "{host}");
    }
}

#[test]
fn members_in_use_are_known_by_their_endpoints() {
    let mut story = voters();
    story.annotate(names::ENDPOINTS_IN_USE_ANNOTATION, &[0, 1].map(client_url).join(","));
    let view = View::new(&story.observation);
    let in_use = InUse::of(&view);
    for seat in view.roster.voters() {
        let used = seat.machine.is_some_and(|found| [0, 1].map(name).contains(&found.name));
        assert_eq!(in_use.has(seat), used, "{:?}", seat.machine.map(|machine| &machine.name));
    }
}
