//! Two Machines with one address: which of them a member belongs to, and what goes with it.

use super::{message, step};
use crate::fixture::{Story, address, id, name};
use crate::observation::Membership;
use crate::plan::{Plan, Step, View};
use api::conditions as c;
use api::names;

/// The next machine may get the address of a machine that is gone for good. etcd may list its member before its Machine
/// shows that address.
#[test]
fn a_member_that_was_seated_by_a_stale_address_is_not_destroyed_with_its_own_machine() {
    let mut story = Story::with_voters(3, 2);
    story.machine(2);
    story.pass(600);
    story.machine(3);
    story.observation.machines.get_mut(&name(3)).unwrap().addresses.clear();
    story.voter(3);
    let rename = |story: &mut Story, called: &str| {
        if let Membership::Known { members, .. } = &mut story.observation.membership {
            let member = members.get_mut(&id(3)).unwrap();
            member.peer_urls = vec![names::peer_url(&address(2))];
            member.name = called.to_owned();
        }
    };
    // The member has not started, so it has no name and is seated by its address. From then on, the record says so.
    rename(&mut story, "");
    assert_eq!(story.settle().members[0].machine, name(2));
    for (called, seat) in [(name(3), Some(name(3))), ("ip-10-0-0-3".to_owned(), None)] {
        let mut story = story.clone();
        rename(&mut story, &called);
        story.address(3);
        story.settle();
        story.pass(600);
        story.delete(3);
        let plan = step(&mut story);
        assert!(!matches!(&plan, Plan::Do(Step::ReleaseHook { .. })), "{called}: {plan:?}");
        let view = View::new(&story.observation);
        let seated = view.roster.by_member(id(3)).unwrap().machine.unwrap().name.clone();
        assert_eq!(seated, seat.unwrap_or(name(2)), "{called}");
    }
}

/// The next machine may get the address of a machine that is gone for good, whose Machine shows the address forever.
#[test]
fn a_member_is_not_seated_on_a_dead_machine_that_had_its_address() {
    let mut story = Story::with_voters(3, 2);
    story.machine(2);
    story.pass(600);
    story.machine(3);
    let same = story.observation.machines[&name(2)].addresses.clone();
    story.observation.machines.get_mut(&name(3)).unwrap().addresses = same;
    story.voter(3);
    if let Membership::Known { members, .. } = &mut story.observation.membership {
        let urls = vec![names::peer_url(&address(2))];
        members.get_mut(&id(3)).unwrap().peer_urls = urls;
    }
    let view = View::new(&story.observation);
    assert_eq!(view.roster.by_member(id(3)).unwrap().machine.unwrap().name, name(3), "its name says which");
    assert!(view.roster.by_machine(&name(2)).unwrap().member.is_none());
    // The member answers at the address that the dead Machine still shows. That does not keep the dead Machine.
    let mut answers = story.clone();
    let probe = answers.observation.probes[&name(3)].clone();
    answers.observation.probes.insert(name(2), probe);
    answers.delete(2);
    let mut nameless = answers.clone();
    let plan = step(&mut answers);
    assert_eq!(plan, Plan::Do(Step::NoteRelease { machine_uid: "uid-2".to_owned() }));
    // If its name does not tell the Machines apart, the member may be this Machine's own, although the record names
    // another Machine. So this Machine is not let go.
    nameless.settle();
    if let Membership::Known { members, .. } = &mut nameless.observation.membership {
        members.get_mut(&id(3)).unwrap().name = "ip-10-0-0-3".to_owned();
    }
    nameless.settle();
    let said = message(&nameless, c::MACHINES_DELETING);
    assert!(said.contains("may be its own") && !said.contains("kubectl annotate"), "{said}");
    // If the name says nothing, the member may belong to either Machine, so neither is released.
    if let Membership::Known { members, .. } = &mut story.observation.membership {
        members.get_mut(&id(3)).unwrap().name = "ip-10-0-0-3".to_owned();
    }
    for index in 2..4 {
        let mut story = story.clone();
        story.pass(600);
        story.delete(index);
        let plan = step(&mut story);
        assert!(!matches!(plan, Plan::Do(Step::ReleaseHook { .. })), "{plan:?}");
        assert!(message(&story, c::MACHINES_DELETING).contains("may be its own"));
    }
}
