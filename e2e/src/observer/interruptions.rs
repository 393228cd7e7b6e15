//! What interrupts clients in a change that goes well: leadership moves, a member is removed, or an API server ends. A
//! request that is under way then may stay without an answer.

use super::record::{Answer, Event, Line, Member};
use super::state::{EtcdView, State};
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How long before it is seen something may have happened. A member that takes longer to answer counts as silent, and
/// while clients write, its member list may take a few rounds to read.
const SEEN: Duration = Duration::from_secs(1);
/// How long a removal goes on. The etcd of a removed member ends a second later, and what is sent to it until then is
/// lost. The rest is for a busy computer, and for clients that hear of other endpoints.
const LEAVES: Duration = Duration::from_millis(1_500);

/// Something that may leave a request without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interruption {
    /// What happens.
    pub what: String,
    /// When it may have begun.
    pub from: Timestamp,
    /// When it was over at the latest.
    pub to: Timestamp,
    /// The only endpoint whose requests it concerns. `None`: it concerns those of all endpoints.
    pub endpoint: Option<String>,
}

/// What interrupted the clients of an EtcdCluster, `<namespace>/<name>`, and of the API servers that use it, by this
/// record.
#[must_use]
pub fn interruptions(lines: &[Line], etcd: &str) -> Vec<Interruption> {
    let (mut search, mut state) = (Search::default(), State::default());
    for line in lines {
        let before = state.clone();
        state.apply(line);
        if let (Some(was), Some(is)) = (before.etcds.get(etcd), state.etcds.get(etcd)) {
            search.leadership(line, etcd);
            search.removals(line, was, is);
            search.servers(line, &before, &is.object.cluster);
        }
    }
    if let Some(last) = lines.last() {
        search.are_withdrawn(last.at, |_| true);
    }
    search.found.into_values().collect()
}

#[derive(Default)]
struct Search {
    /// The leader that each member has reported last, by the member's ID, and since when it reports none.
    leaders: BTreeMap<String, (String, Option<Timestamp>)>,
    /// Endpoints of removed members that are still published: the member's name, and since when.
    dead: BTreeMap<String, (String, Timestamp)>,
    /// Since when API servers that were ready are not.
    unready: BTreeMap<String, Timestamp>,
    /// By what happens, because every member reports it.
    found: BTreeMap<String, Interruption>,
}

impl Search {
    fn finds(&mut self, what: String, (from, to): (Timestamp, Timestamp), endpoint: Option<String>) {
        let new = Interruption { what: what.clone(), from, to, endpoint };
        let found = self.found.entry(what).or_insert(new);
        (found.from, found.to) = (found.from.min(from), found.to.max(to));
    }

    /// Another member leads. A member that only loses its leader for a while shows no such move.
    fn leadership(&mut self, line: &Line, etcd: &str) {
        let Event::Member(member) = &line.event else { return };
        let Answer::Status(status) = &member.answer else { return };
        if member.etcd != etcd {
            return;
        }
        let Some((leader, none_since)) = self.leaders.get_mut(&status.id) else {
            // A new member has no leader at first.
            if !status.leader.is_empty() {
                self.leaders.insert(status.id.clone(), (status.leader.clone(), None));
            }
            return;
        };
        let since = none_since.unwrap_or_else(|| earliest(line.at, member));
        if status.leader.is_empty() {
            *none_since = Some(since);
            return;
        }
        *none_since = None;
        let before = std::mem::replace(leader, status.leader.clone());
        if before != status.leader {
            let what = format!("leadership moves from {before} to {} in term {}", status.leader, status.term);
            self.finds(what, (since, line.at), None);
        }
    }

    /// A member is gone from the member list. Its endpoint leads nowhere as long as it is published.
    fn removals(&mut self, line: &Line, was: &EtcdView, is: &EtcdView) {
        if let Event::Member(member) = &line.event {
            let since = earliest(line.at, member);
            for left in was.list.iter().filter(|left| is.list.iter().all(|listed| listed.id != left.id)) {
                self.finds(format!("member {} {} is removed", left.id, left.name), (since, line.at + LEAVES), None);
                let dead = left.urls.iter().filter(|url| is.object.endpoints.contains(url));
                self.dead.extend(dead.map(|url| (url.clone(), (left.name.clone(), since))));
            }
        }
        let is_served = |url: &String| is.list.iter().any(|listed| listed.urls.contains(url));
        self.are_withdrawn(line.at, |url| is_served(url) || !is.object.endpoints.contains(url));
    }

    /// Some endpoints of removed members are no longer published.
    fn are_withdrawn(&mut self, at: Timestamp, is_withdrawn: impl Fn(&String) -> bool) {
        let (withdrawn, dead): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.dead).into_iter().partition(|(url, _)| is_withdrawn(url));
        self.dead = dead;
        for (url, (name, since)) in withdrawn {
            let what = format!("{url}, of the removed member {name}, is published");
            self.finds(what, (since, at + LEAVES), Some(url));
        }
    }

    /// An API server ends. Before that it says that it is not ready.
    fn servers(&mut self, line: &Line, before: &State, cluster: &str) {
        let was = |name: &String| before.api_servers.get(name).filter(|server| server.cluster == cluster);
        match &line.event {
            Event::ApiServer(server) if server.ready == Some(true) => drop(self.unready.remove(&server.name)),
            Event::ApiServer(server) if was(&server.name).is_some_and(|was| was.ready == Some(true)) => {
                self.unready.insert(server.name.clone(), line.at);
            }
            Event::Gone { what, name } if what == "apiServer" && was(name).is_some() => {
                let since = self.unready.remove(name).unwrap_or(line.at);
                self.finds(format!("API server {name} ends"), (since - SEEN, line.at), None);
            }
            _ => {}
        }
    }
}

/// When something may have happened that an answer shows.
fn earliest(at: Timestamp, member: &Member) -> Timestamp {
    at - SEEN.max(Duration::from_millis(member.gap.unwrap_or_default()))
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} to {:.3}: {}", self.from, self.to, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::super::story::{LEARNER, Story, VOTER, url};
    use super::*;

    /// What is found, and its first and last millisecond since the story began.
    fn found(story: &Story) -> Vec<(String, i64, i64)> {
        let since = |at: Timestamp| i64::try_from(at.duration_since(story.lines[0].at).as_millis()).unwrap();
        let found = interruptions(&story.lines, "ns/e");
        found.iter().map(|it| (it.what.clone(), since(it.from), since(it.to))).collect()
    }

    fn three() -> Story {
        Story::of(3).published(&[0, 1, 2]).list(&[(0, VOTER), (1, VOTER), (2, VOTER)]).answer(&[0, 1, 2]).after(10)
    }

    #[test]
    fn a_move_of_leadership_lasts_until_the_last_member_has_seen_it() {
        let moves = "leadership moves from 0 to 1 in term 0".to_owned();
        for (what, story, expected) in [
            ("nothing", three().grows().answer(&[0, 1, 2]), vec![]),
            (
                "all see it",
                three().led_by("1").answer(&[0, 1]).after(2).answer(&[2]),
                vec![(moves.clone(), 9000, 12000)],
            ),
            (
                "an election",
                three().led_by("").answer(&[0]).after(2).led_by("1").answer(&[0]),
                vec![(moves, 9000, 12000)],
            ),
            ("the same leader again", three().led_by("").answer(&[1]).after(2).led_by("0").answer(&[1]), vec![]),
            ("a new member", three().led_by("").answer(&[3]).led_by("0").answer(&[3]), vec![]),
        ] {
            assert_eq!(found(&story), expected, "{what}");
        }
    }

    #[test]
    fn a_removal_lasts_until_the_endpoint_is_no_longer_published() {
        let removed = |to| ("member 2 m2 is removed".to_owned(), 9000, to);
        let published = |to| (format!("{}, of the removed member m2, is published", url(2)), 9000, to);
        let comes = three().list(&[(0, VOTER), (1, VOTER), (2, VOTER), (3, LEARNER)]).answer(&[0]);
        let left = |story: Story| story.list(&[(0, VOTER), (1, VOTER)]).answer(&[0]);
        for (what, story, expected) in [
            ("a learner comes", comes, vec![]),
            ("withdrawn before", left(three().published(&[0, 1])), vec![removed(11500)]),
            ("withdrawn later", left(three()).after(5).published(&[0, 1]), vec![published(16500), removed(11500)]),
            ("never withdrawn", left(three()).after(20), vec![published(31500), removed(11500)]),
        ] {
            assert_eq!(found(&story), expected, "{what}");
        }
    }

    #[test]
    fn an_api_server_ends_when_it_is_no_longer_ready() {
        let server = || three().server_is(true).after(5).server_is(false).after(3);
        assert_eq!(found(&server()), [], "it may come back");
        assert_eq!(found(&server().server_ends()), [("API server ns/server ends".to_owned(), 14000, 18000)]);
        assert_eq!(found(&server().server_is(true).after(5).server_ends()).last().unwrap().1, 22000);
    }
}
