//! The invariants: what no record may show. All of them are pure, so that a record can be judged again at any time.

mod additions;
mod coming;
mod endpoints;
mod fence;
mod machines;
mod max_learners;
mod memory;
mod one_at_a_time;
mod published;
mod reuse;
mod rollouts;
mod sight;
mod spells;
mod strength;
#[cfg(test)]
mod tests;
mod voters;

use super::record::{Event, Line, Listed, Member};
use super::state::{EtcdView, State};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

pub use memory::NAME as FORGETFUL;

/// How long before and after a violation our writes are shown.
const AROUND: (SignedDuration, SignedDuration) = (SignedDuration::from_secs(3), SignedDuration::from_secs(1));
/// How many writes are shown at most: those nearest to the violation.
const MOST: usize = 12;
/// How long a member must have answered before its answer counts as the answer to the last request.
const ANSWERED: SignedDuration = SignedDuration::from_secs(1);

/// A write that the API server has answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Write {
    /// When it came in.
    pub at: Timestamp,
    /// Whether it was our manager's.
    pub ours: bool,
    /// Whether it was a person's or a scenario's.
    pub by_hand: bool,
    /// `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Resource in the plural, with its subresource after a slash.
    pub resource: String,
    /// `<namespace>/<name>`.
    pub name: String,
    /// HTTP status of the answer.
    pub code: u16,
    /// The endpoints that it writes into a control plane.
    pub endpoints: Option<Vec<String>>,
    /// The fields that it changes, as far as the audit log has them.
    pub fields: Vec<String>,
}

impl Write {
    /// What it does and to what, in words.
    #[must_use]
    pub fn deed(&self) -> String {
        let deed = format!("{} {} {}", self.verb, self.resource, self.name);
        if self.fields.is_empty() { deed } else { format!("{deed} ({})", self.fields.join(", ")) }
    }

    /// Whether it was carried out.
    #[must_use]
    pub fn is_done(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

/// Something that must not happen, but has happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// Name of the rule.
    pub rule: &'static str,
    /// When.
    pub at: Timestamp,
    /// The EtcdCluster.
    pub etcd: String,
    /// The Machine that it is about; empty if it is about the cluster.
    pub machine: String,
    /// What was seen.
    pub what: String,
    /// The state of the cluster before it.
    pub before: String,
    /// Our writes around it.
    pub writes: Vec<String>,
}

/// One line of a record, with what was known before and after it.
struct Moment<'a> {
    line: &'a Line,
    before: &'a State,
    after: &'a State,
    writes: &'a [Write],
}

/// What a rule has found, before it is put into context.
struct Finding {
    /// When it began; the moment's own time if not given.
    at: Option<Timestamp>,
    etcd: String,
    machine: String,
    what: String,
}

trait Rule {
    fn name(&self) -> &'static str;
    /// Reads the next line, and returns what is wrong with it.
    fn look(&mut self, moment: &Moment<'_>) -> Vec<Finding>;
}

/// Judges a record. `writes` are those made during the record, oldest first.
#[must_use]
pub fn check(lines: &[Line], writes: &[Write]) -> Vec<Violation> {
    let mut rules: Vec<Box<dyn Rule>> = vec![
        Box::new(voters::Voters::default()),
        Box::new(strength::Strength::default()),
        Box::new(one_at_a_time::OneAtATime::default()),
        Box::new(additions::Additions),
        Box::new(coming::Coming::default()),
        Box::new(max_learners::MaxLearners::default()),
        Box::new(memory::Memory::default()),
        Box::new(fence::Fence::default()),
        Box::new(endpoints::Endpoints::default()),
        Box::new(published::Published::default()),
        Box::new(rollouts::Rollouts::default()),
        Box::new(reuse::Reuse::default()),
        Box::new(machines::Machines::default()),
        Box::new(sight::Sight::default()),
    ];
    let mut state = State::default();
    let mut violations: Vec<Violation> = Vec::new();
    for line in lines {
        let before = state.clone();
        state.apply(line);
        let moment = Moment { line, before: &before, after: &state, writes };
        for rule in &mut rules {
            let found = rule.look(&moment);
            violations.extend(found.into_iter().map(|finding| Violation {
                rule: rule.name(),
                at: finding.at.unwrap_or(line.at),
                etcd: finding.etcd,
                machine: finding.machine,
                what: finding.what,
                before: String::new(),
                writes: written_around(finding.at.unwrap_or(line.at), writes),
            }));
        }
    }
    violations.sort_by_key(|violation| violation.at);
    say_what_was_before(&mut violations, lines);
    violations
}

/// Adds the state before each violation. This takes a second pass over the record, because a violation may be found
/// some time after it has happened.
fn say_what_was_before(violations: &mut [Violation], lines: &[Line]) {
    let mut state = State::default();
    let mut lines = lines.iter().peekable();
    for violation in violations {
        while let Some(line) = lines.next_if(|line| line.at < violation.at) {
            state.apply(line);
        }
        let view = state.etcds.get(&violation.etcd);
        violation.before = view.map_or_else(String::new, |view| state.describe(view));
    }
}

/// Our writes around a moment, in words.
fn written_around(at: Timestamp, writes: &[Write]) -> Vec<String> {
    let mut near: Vec<&Write> =
        writes.iter().filter(|write| write.ours && at - AROUND.0 <= write.at && write.at <= at + AROUND.1).collect();
    near.sort_by_key(|write| write.at.duration_since(at).abs());
    near.truncate(MOST);
    near.sort_by_key(|write| write.at);
    near.into_iter().map(ToString::to_string).collect()
}

impl Moment<'_> {
    fn now(&self) -> Timestamp {
        self.line.at
    }

    /// The clusters as they were before this line, without those that are being deleted.
    fn clusters(&self) -> impl Iterator<Item = (&String, &Arc<EtcdView>)> {
        self.before.etcds.iter().filter(|(_, view)| !self.before.is_ending(view))
    }

    /// The clusters in which a member answers. The list of any other cluster is outdated: a learner in it may have been
    /// promoted.
    fn answered_clusters(&self) -> impl Iterator<Item = (&String, &Arc<EtcdView>)> {
        self.clusters().filter(|(_, view)| view.seats.values().any(|seat| view.is_live(seat)))
    }

    /// The answer of a member of a cluster that is not being deleted, with that cluster before and after it.
    fn answer(&self) -> Option<(&Member, &EtcdView, &EtcdView)> {
        let Event::Member(member) = &self.line.event else { return None };
        let (before, after) = (self.before.etcds.get(&member.etcd)?, self.after.etcds.get(&member.etcd)?);
        (!self.after.is_ending(after)).then_some((member, before, after))
    }

    /// The same, if the answer has a different member list.
    fn new_list(&self) -> Option<(&Member, &EtcdView, &EtcdView)> {
        self.answer().filter(|(_, before, after)| before.list != after.list)
    }

    /// The same, if the member had the previous list, was asked without a gap and has answered for a while: then
    /// whatever is new happened since the last round. The first answer after a silence may be the answer to a much
    /// older request.
    fn new_list_of_this_round(&self) -> Option<(&Member, &EtcdView, &EtcdView)> {
        let had_it = |member: &Member, before: &EtcdView| {
            let Some(seat) = before.seats.get(&member.url) else { return false };
            let answers_for = self.now().duration_since(seat.since);
            seat.status().is_some_and(|status| status.list == before.list) && answers_for >= ANSWERED
        };
        self.new_list()
            .filter(|(member, before, _)| !before.list.is_empty() && member.gap.is_none() && had_it(member, before))
    }
}

impl Finding {
    fn about(etcd: &str, machine: &str, what: String) -> Self {
        Self { at: None, etcd: etcd.to_owned(), machine: machine.to_owned(), what }
    }

    fn since(self, at: Timestamp) -> Self {
        Self { at: Some(at), ..self }
    }
}

impl State {
    /// A cluster in one line: every listed member, then every other URL that was asked.
    fn describe(&self, view: &EtcdView) -> String {
        let seated = |member: &Listed| match view.seat(member) {
            None => "never answered".to_owned(),
            Some(seat) => match seat.status() {
                None => "silent".to_owned(),
                Some(status) if status.cluster_id != view.id => format!("answers as {}", status.cluster_id),
                Some(status) if status.leader == status.id => format!("leads, index {}", status.index),
                Some(status) => format!("index {}", status.index),
            },
        };
        let role = |member: &Listed| if member.learner { "learner" } else { "voter" };
        let listed = view.list.iter().map(|member| {
            let name = if member.name.is_empty() { &member.id } else { &member.name };
            format!("{name} {}, {}", role(member), seated(member))
        });
        let urls: BTreeSet<&String> = view.list.iter().flat_map(|member| &member.urls).collect();
        let others = view.seats.iter().filter(|(url, _)| !urls.contains(url));
        let others = others.map(|(url, seat)| {
            let answers = if seat.status().is_some() { "answers" } else { "silent" };
            format!("{url} not listed, {answers}")
        });
        listed.chain(others).collect::<Vec<_>>().join("; ")
    }
}

/// Names of members, for messages.
fn names<'a>(members: impl IntoIterator<Item = &'a Listed>) -> String {
    let name = |member: &'a Listed| if member.name.is_empty() { member.id.clone() } else { member.name.clone() };
    members.into_iter().map(name).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} {}: {}", self.at, self.deed(), self.code)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.3}, {}: {}", self.rule, self.at, self.etcd, self.what)?;
        write!(f, "\n    before: {}", self.before)?;
        if self.writes.is_empty() {
            return write!(f, "\n    we wrote nothing around that time");
        }
        self.writes.iter().try_for_each(|line| write!(f, "\n    we wrote: {line}"))
    }
}
