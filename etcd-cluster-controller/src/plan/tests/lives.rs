//! What the plan does in the lives of clusters, from the first step to the last, as text files: each state in short,
//! and the decision in it. A change of the plan shows as a change of a story. Read the change, and accept it:
//! `INSTA_UPDATE=always cargo test -p etcd-cluster-controller --lib lives`.

use super::rolling::{edit, outdated, urls};
use super::surging::use_lists;
use crate::fixture::{CLUSTER_ID, Story, id};
use crate::observation::probe::MemberFault;
use crate::observation::{Membership, Outcome, Report};
use crate::plan::{Decision, Plan, Step, View, plan};
use crate::roster::{Seat, Verdict, number};
use api::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::fmt::Write;

/// Decisions between two events. More means that the plan does not come to rest.
const MOST: usize = 60;

/// A story that is told while it goes on: what the controller decides is done, until it waits for something.
struct Life {
    story: Story,
    text: String,
    last: String,
    published: String,
}

impl Life {
    fn of(story: Story) -> Self {
        let mut life = Self { story, text: String::new(), last: String::new(), published: String::new() };
        life.goes_on();
        life
    }

    /// Healthy voters, with which nothing is to be done.
    fn of_voters(count: i32) -> Self {
        Self::of(voters(count))
    }

    fn event(&mut self, what: &str, change: impl FnOnce(&mut Story)) {
        let _ = writeln!(self.text, "\n# {what}");
        change(&mut self.story);
        self.goes_on();
    }

    /// An admitted Machine boots, becomes a learner, and a voter.
    fn joins(&mut self, index: usize) {
        self.boots(index);
        self.becomes_a_learner(index);
        self.event(&format!("demo-etcd-{index} is promoted"), |story| story.voter(index));
    }

    fn boots(&mut self, index: usize) {
        self.event(&format!("demo-etcd-{index} boots"), |story| {
            story.bootstrap(index);
            story.address(index);
            story.failing(index, "nothing listens there yet");
        });
    }

    fn becomes_a_learner(&mut self, index: usize) {
        self.event(&format!("demo-etcd-{index} joins"), |story| {
            story.member(index, true);
            story.healthy(index);
        });
    }

    /// Goes on until there is nothing to do, and the status says so.
    fn goes_on(&mut self) {
        for _ in 0..MOST {
            let decision = plan(&self.story.observation);
            self.tell(&decision);
            let before = self.story.observation.etcd.status.clone();
            let is_told = before == Some(self.story.settle());
            match decision.next {
                Plan::Do(step) => happens(&mut self.story, &step),
                Plan::Steady | Plan::Wait(_) | Plan::Block(_) if is_told => return,
                Plan::Steady | Plan::Wait(_) | Plan::Block(_) => {}
            }
        }
        panic!("it does not come to rest:\n{}", self.text);
    }

    fn tell(&mut self, decision: &Decision) {
        let next = match &decision.next {
            Plan::Do(step) => step.describe(),
            Plan::Wait(hold) => format!("waits: {}: {}", hold.reason, hold.message),
            Plan::Block(hold) => format!("blocks: {}: {}", hold.reason, hold.message),
            Plan::Steady => "steady".to_owned(),
        };
        let view = View::new(&self.story.observation);
        let seats: Vec<String> = view.roster.seats.iter().map(|seat| describe(&view, seat)).collect();
        let list = if view.roster.is_listed() { "" } else { " (the member list is not known)" };
        let now = format!("  {}{list}\n  -> {next}\n", seats.join("; "));
        if now != self.last {
            self.text.push_str(&now);
            self.last = now;
        }
        let publish = &decision.publish;
        let ready = if publish.ready { "ready" } else { "not ready" };
        let endpoints = publish.endpoints.replace("https://", "").replace(":2379", "");
        let published = format!("     published: {ready}, {endpoints}\n");
        if published != self.published {
            self.text.push_str(&published);
            self.published = published;
        }
    }
}

/// A seat in a few words.
fn describe(view: &View<'_>, seat: &Seat<'_>) -> String {
    let mut words = vec![seat.name()];
    let is = match (&seat.member, seat.machine) {
        (Some((_, member)), _) if member.learner => "learner",
        (Some(_), _) => "voter",
        (None, Some(machine)) if view.observation.has_data(machine) => "boots",
        (None, _) => "held back",
    };
    words.push(is.to_owned());
    let health = match seat.verdict {
        Verdict::Healthy { .. } => "well",
        Verdict::Failing { .. } => "fails",
        Verdict::Unhealthy { .. } => "unhealthy",
        Verdict::Unknown { .. } => "unknown",
    };
    words.extend(seat.member.is_some().then(|| health.to_owned()));
    words.extend(seat.leads().then(|| "leads".to_owned()));
    words.extend(seat.is_leaving().then(|| "leaving".to_owned()));
    words.join(" ")
}

fn index(name: &str) -> usize {
    number(name).and_then(|number| usize::try_from(number).ok()).expect("a number in the name")
}

/// Changes the story as a step changes the world. What only the status records is in the status already.
fn happens(story: &mut Story, step: &Step) {
    match step {
        Step::Record { annotations, .. } => {
            for (key, value) in annotations {
                match value {
                    Some(value) => story.annotate(key, value),
                    None => drop(story.etcd().metadata.annotations.get_or_insert_default().remove(*key)),
                }
            }
        }
        Step::PublishInit { .. } => story.publish(),
        Step::CreateMachine { number, .. } => {
            story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, &number.to_string());
            story.held_back(usize::try_from(*number).unwrap());
        }
        Step::Admit { name, .. } => story.admit(index(name)),
        Step::DeleteMachine { name, .. } => story.delete(index(name)),
        Step::DeleteHeldBack { name, .. } => story.gone(index(name)),
        Step::MoveLeader { to, .. } => story.led_by(*to),
        Step::RemoveMember(permission) => {
            if let Membership::Known { members, .. } = &mut story.observation.membership {
                members.remove(&permission.member_id());
            }
        }
        Step::ReleaseHook { machine, .. } => story.gone(index(machine)),
        Step::DeleteMachines { delete, release, .. } => {
            delete.iter().for_each(|name| story.delete(index(name)));
            release.iter().for_each(|name| story.gone(index(name)));
        }
        Step::RemoveFinalizer => story.etcd().metadata.finalizers = None,
        Step::BeginRemediation(_) | Step::Begin(_) | Step::Finish(_) | Step::NoteRelease { .. } => {}
        other => panic!("in no story: {other:?}"),
    }
}

fn voters(count: i32) -> Story {
    let mut story = Story::with_voters(count, usize::try_from(count).unwrap());
    numbered(&mut story, count);
    story
}

/// Records the highest number so far, as the controller does when it creates Machines.
fn numbered(story: &mut Story, count: i32) {
    story.annotate(names::LAST_NAME_NUMBER_ANNOTATION, &(count - 1).to_string());
    story.settle();
}

/// Three that API servers use, and whose spec has changed since.
fn rolled() -> Story {
    let mut story = outdated(3, true);
    numbered(&mut story, 3);
    story
}

#[test]
fn three_are_brought_up() {
    let mut life = Life::of(Story::new(3));
    life.event("demo-etcd-0 has its bootstrap data", |story| story.bootstrap(0));
    life.event("demo-etcd-0 has an address", |story| story.address(0));
    life.event("demo-etcd-0 is the first member", |story| story.voter(0));
    life.joins(1);
    life.joins(2);
    insta::assert_snapshot!(life.text);
}

#[test]
fn one_grows_to_three() {
    let mut life = Life::of_voters(1);
    life.event("three are wanted", |story| story.etcd().spec.replicas = 3);
    life.joins(1);
    life.joins(2);
    insta::assert_snapshot!(life.text);
}

#[test]
fn five_shrink_to_three_that_are_in_use() {
    let mut life = Life::of_voters(5);
    life.event("API servers use all of them", |story| use_lists(story, &[urls(0..5)]));
    life.event("three are wanted", |story| story.etcd().spec.replicas = 3);
    life.event("the control plane is told", |story| use_lists(story, &[urls(0..5), urls(0..3)]));
    life.event("the control plane has rolled out", |story| use_lists(story, &[urls(0..3)]));
    insta::assert_snapshot!(life.text);
}

#[test]
fn three_in_use_are_rolled_out() {
    let mut life = Life::of(rolled());
    (3..6).for_each(|index| life.joins(index));
    life.event("the control plane is told", |story| use_lists(story, &[urls(0..3), urls(3..6)]));
    life.event("the control plane has rolled out", |story| use_lists(story, &[urls(3..6)]));
    insta::assert_snapshot!(life.text);
}

#[test]
fn a_new_version_is_taken_back() {
    let mut life = Life::of(rolled());
    life.joins(3);
    life.event("the version before is wanted again", |story| edit(story, "3.6.16"));
    // Both were admitted: one joins before it goes, and the other one never does.
    life.boots(4);
    life.becomes_a_learner(4);
    life.event("ten minutes have passed", |story| story.pass(600));
    insta::assert_snapshot!(life.text);
}

/// One of three fails and is replaced, with room for `most` Machines beyond the wanted number.
fn repaired(most: i32) -> String {
    let mut story = voters(3);
    story.surges(most);
    let mut life = Life::of(story);
    life.event("demo-etcd-2 fails", |story| story.failing(2, "down"));
    life.event("a minute has passed", |story| story.pass(60));
    life.joins(3);
    life.text
}

#[test]
fn a_failed_member_is_replaced() {
    insta::assert_snapshot!(repaired(1));
}

#[test]
fn a_failed_member_is_replaced_where_there_is_no_room() {
    insta::assert_snapshot!(repaired(0));
}

#[test]
fn a_quorum_is_lost_and_comes_back() {
    let mut life = Life::of_voters(3);
    life.event("demo-etcd-1 and demo-etcd-2 fail", |story| {
        let alone = Report { leader: 0, linearizable: Err(MemberFault::NoLeader), ..well(0) };
        story.probe(0, Outcome::Answered(alone));
        story.failing(1, "down");
        story.failing(2, "down");
        story.unlisted();
    });
    life.event("ten minutes have passed", |story| story.pass(600));
    life.event("they come back with their data", |story| (0..3).for_each(|index| story.voter(index)));
    insta::assert_snapshot!(life.text);
}

fn well(index: usize) -> Report {
    Report::of_one_that_is_well(CLUSTER_ID, id(index))
}

#[test]
fn a_cluster_is_deleted() {
    let mut life = Life::of_voters(3);
    life.event("somebody deletes the EtcdCluster", |story| {
        let now = story.observation.now;
        story.etcd().metadata.deletion_timestamp = Some(Time(now));
    });
    life.event("somebody confirms it", |story| story.annotate(names::CONFIRM_DELETION_ANNOTATION, "demo-etcd"));
    insta::assert_snapshot!(life.text);
}
