//! Records for tests, of a cluster `ns/e` whose members `m0`, `m1` … have the addresses 10.0.0.0, 10.0.0.1 …

use crate::observer::record::{
    Answer, ApiServer, Cluster, ControlPlane, Disk, Etcd, Event, Fault, Line, Listed, Machine, Member, Operation,
    Process, Status,
};
use crate::observer::rules::{Write, check};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// Whether a listed member is a learner.
pub(super) const VOTER: bool = false;
pub(super) const LEARNER: bool = true;

const ETCD: &str = "ns/e";
const PLANE: &str = "ns/p";

pub(super) struct Story {
    pub(super) lines: Vec<Line>,
    pub(super) writes: Vec<Write>,
    at: Timestamp,
    etcd: Etcd,
    list: Vec<Listed>,
    index: u64,
    leader: String,
    gap: Option<u64>,
}

pub(super) fn url(number: usize) -> String {
    format!("https://10.0.0.{number}:2379")
}

fn urls(numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|number| url(*number)).collect()
}

impl Story {
    pub(super) fn of(replicas: usize) -> Self {
        let etcd = Etcd {
            name: ETCD.to_owned(),
            uid: "first".to_owned(),
            cluster: "ns/c".to_owned(),
            replicas,
            spec: json!({"replicas": replicas}),
            max_learners: Some(3),
            ..Etcd::default()
        };
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let (lines, writes, list) = (Vec::new(), Vec::new(), Vec::new());
        let leader = "0".to_owned();
        let mut story = Self { lines, writes, at, etcd: etcd.clone(), list, index: 9, leader, gap: None };
        for number in 0..5 {
            story.machine(ETCD, number);
        }
        story.and(Event::Etcd(etcd))
    }

    fn and(mut self, event: Event) -> Self {
        self.lines.push(Line { at: self.at, event });
        self
    }

    fn machine(&mut self, etcd: &str, number: usize) {
        let name = if etcd == ETCD { format!("ns/m{number}") } else { format!("other/m{number}") };
        let addresses = vec![format!("10.0.0.{number}")];
        let machine = Machine { name, etcd: etcd.to_owned(), addresses, ..Machine::default() };
        self.lines.push(Line { at: self.at, event: Event::Machine(machine) });
    }

    /// A Machine is being deleted, and no longer has our pre-terminate hook.
    pub(super) fn let_go(self, number: usize) -> Self {
        let machine = Machine {
            name: format!("ns/m{number}"),
            etcd: ETCD.to_owned(),
            addresses: vec![format!("10.0.0.{number}")],
            deleting: true,
            ..Machine::default()
        };
        self.and(Event::Machine(machine))
    }

    /// A Machine with this UID appears.
    pub(super) fn made(self, number: usize, uid: &str) -> Self {
        let machine =
            Machine { name: format!("ns/m{number}"), uid: uid.to_owned(), etcd: ETCD.to_owned(), ..Machine::default() };
        self.and(Event::Machine(machine))
    }

    /// A Machine has its bootstrap data.
    pub(super) fn boots(self, number: usize) -> Self {
        let (name, etcd, phase) = (format!("ns/m{number}"), ETCD.to_owned(), "Provisioning".to_owned());
        self.and(Event::Machine(Machine { name, etcd, phase, ..Machine::default() }))
    }

    /// Seconds pass, and something is seen that changes nothing.
    pub(super) fn after(mut self, seconds: i64) -> Self {
        self.at += SignedDuration::from_secs(seconds);
        self.and(Event::note("later"))
    }

    /// What was done to one of our managers, for the pages of this namespace.
    pub(super) fn note(self, text: &str, namespace: &str) -> Self {
        self.and(Event::Note { text: text.to_owned(), namespace: namespace.to_owned() })
    }

    /// From now on, the members that answer report this member list.
    pub(super) fn list(mut self, members: &[(usize, bool)]) -> Self {
        self.index += 1;
        let listed = |(number, learner): &(usize, bool)| Listed {
            id: format!("{number}"),
            name: format!("m{number}"),
            learner: *learner,
            urls: urls(&[*number]),
        };
        self.list = members.iter().map(listed).collect();
        self
    }

    fn status(&self, number: usize) -> Status {
        Status {
            id: number.to_string(),
            cluster_id: self.etcd.uid.clone(),
            leader: self.leader.clone(),
            index: self.index,
            applied: self.index,
            list: self.list.clone(),
            list_at: self.index,
            ..Status::default()
        }
    }

    fn member(self, number: usize, answer: Answer) -> Self {
        let gap = self.gap;
        self.and(Event::Member(Member { etcd: ETCD.to_owned(), url: url(number), answer, gap }))
    }

    pub(super) fn answer(self, numbers: &[usize]) -> Self {
        numbers.iter().fold(self, |story, number| {
            let status = story.status(*number);
            story.member(*number, Answer::Status(Box::new(status)))
        })
    }

    pub(super) fn silent(self, number: usize) -> Self {
        self.member(number, Answer::Silent("it is silent".to_owned()))
    }

    /// A member answers with an index that is lower by `by`.
    pub(super) fn goes_back(self, number: usize, by: u64) -> Self {
        let status = Status { index: self.index - by, ..self.status(number) };
        self.member(number, Answer::Status(Box::new(status)))
    }

    /// A member of another cluster answers at this member's URL.
    pub(super) fn stranger(self, number: usize) -> Self {
        let status = Status { id: "77".to_owned(), cluster_id: "another".to_owned(), ..self.status(number) };
        self.member(number, Answer::Status(Box::new(status)))
    }

    /// A member answers, and reports this error.
    pub(super) fn complains(self, number: usize, of: &str) -> Self {
        let status = Status { errors: vec![of.to_owned()], ..self.status(number) };
        self.member(number, Answer::Status(Box::new(status)))
    }

    /// The API server of [`Self::server`] is ready, or not any more.
    pub(super) fn server_is(self, ready: bool) -> Self {
        let (name, cluster) = ("ns/server".to_owned(), "ns/c".to_owned());
        self.and(Event::ApiServer(ApiServer { name, cluster, endpoints: urls(&[0]), ready: Some(ready) }))
    }

    /// Something is written to etcd.
    pub(super) fn grows(mut self) -> Self {
        self.index += 1;
        self
    }

    /// From now on, the members that answer report this leader, or none.
    pub(super) fn led_by(mut self, leader: &str) -> Self {
        leader.clone_into(&mut self.leader);
        self
    }

    /// The API server of [`Self::server`] has ended.
    pub(super) fn server_ends(self) -> Self {
        self.and(Event::Gone { what: "apiServer".to_owned(), name: "ns/server".to_owned() })
    }

    /// The log on a disk ends this far from the last index.
    pub(super) fn disk(self, number: usize, from: i64) -> Self {
        let last = self.index.saturating_add_signed(from);
        self.and(Event::Disk(Disk { etcd: ETCD.to_owned(), url: url(number), last }))
    }

    pub(super) fn process(self, number: usize, max_learners: u32) -> Self {
        self.and(Event::Process(Process { url: url(number), max_learners }))
    }

    /// A scenario makes a fault. It ends after this many seconds, or only when another fault ends it.
    pub(super) fn fault(self, numbers: &[usize], seconds: Option<i64>) -> Self {
        let machines = numbers.iter().map(|number| format!("ns/m{number}")).collect();
        let until = seconds.map(|seconds| self.at + SignedDuration::from_secs(seconds));
        self.and(Event::Fault(Fault { what: "a fault".to_owned(), machines, until, ..Fault::default() }))
    }

    /// A scenario removes this member from etcd itself.
    pub(super) fn removed_by_hand(self, number: usize) -> Self {
        let mut story = self.fault(&[number], None);
        if let Some(Event::Fault(fault)) = story.lines.last_mut().map(|line| &mut line.event) {
            fault.removed_by_hand = true;
        }
        story
    }

    /// A scenario has ended its fault: the members have a minute to answer again.
    pub(super) fn over(self, numbers: &[usize]) -> Self {
        let mut story = self.fault(numbers, Some(60));
        if let Some(Event::Fault(fault)) = story.lines.last_mut().map(|line| &mut line.event) {
            fault.over = true;
        }
        story
    }

    /// The observer is held up, and from now on members are asked less often.
    pub(super) fn late(mut self) -> Self {
        self.gap = Some(900);
        self.and(Event::Late { millis: 1500 })
    }

    pub(super) fn etcd(mut self, change: impl FnOnce(&mut Etcd)) -> Self {
        change(&mut self.etcd);
        let etcd = self.etcd.clone();
        self.and(Event::Etcd(etcd))
    }

    /// A removal is written into the status.
    pub(super) fn announced(self, number: usize) -> Self {
        let operation = Operation { what: "RemoveMember".to_owned(), member: number.to_string() };
        self.etcd(|etcd| etcd.operation = Some(operation))
    }

    /// A removal is written into the status, in which these members vote.
    pub(super) fn announced_beside(self, number: usize, voters: &[usize]) -> Self {
        let voters = voters.iter().map(ToString::to_string).collect();
        self.etcd(|etcd| etcd.voters = voters).announced(number)
    }

    pub(super) fn published(self, numbers: &[usize]) -> Self {
        self.etcd(|etcd| etcd.endpoints = urls(numbers))
    }

    /// Two more members are wanted.
    pub(super) fn grow(self) -> Self {
        self.etcd(|etcd| {
            etcd.replicas += 2;
            etcd.spec = json!({"replicas": etcd.replicas});
        })
    }

    /// The Cluster is deleted and gone, and its EtcdCluster is left.
    pub(super) fn left_behind(self) -> Self {
        let (what, name) = ("cluster".to_owned(), "ns/c".to_owned());
        let cluster = Cluster { name: name.clone(), deleting: true, ..Cluster::default() };
        self.and(Event::Cluster(cluster)).and(Event::Gone { what, name })
    }

    /// The EtcdCluster is deleted, and another one of that name is made.
    pub(super) fn applied_again(mut self) -> Self {
        self = self.and(Event::Gone { what: "etcd".to_owned(), name: ETCD.to_owned() });
        self.etcd(|etcd| etcd.uid = "another".to_owned())
    }

    /// A Machine of another cluster has the address of a member too.
    pub(super) fn given_away(mut self, number: usize) -> Self {
        self.machine("other/e", number);
        self
    }

    /// Another etcd cluster, the one to which strangers belong, exists, with a member elsewhere.
    pub(super) fn beside_another(mut self) -> Self {
        let other = "other/e".to_owned();
        let id = "88".to_owned();
        let list = vec![Listed { id: id.clone(), name: "m9".to_owned(), learner: false, urls: urls(&[9]) }];
        let status = Status { id, cluster_id: "another".to_owned(), list, ..self.status(9) };
        let etcd = Etcd { name: other.clone(), uid: "other".to_owned(), replicas: 1, ..self.etcd.clone() };
        self = self.and(Event::Etcd(etcd));
        self.machine(&other, 9);
        let (answer, gap) = (Answer::Status(Box::new(status)), self.gap);
        self.and(Event::Member(Member { etcd: other, url: url(9), answer, gap }))
    }

    /// An API server uses these endpoints.
    pub(super) fn server(self, numbers: &[usize]) -> Self {
        let (name, cluster) = ("ns/server".to_owned(), "ns/c".to_owned());
        self.and(Event::ApiServer(ApiServer { name, cluster, endpoints: urls(numbers), ready: None }))
    }

    /// We write these endpoints into the control plane.
    pub(super) fn plane(mut self, numbers: &[usize]) -> Self {
        self = self.write("patch", "kubeadmcontrolplanes", PLANE);
        if let Some(write) = self.writes.last_mut() {
            write.endpoints = Some(urls(numbers));
        }
        let (name, cluster) = (PLANE.to_owned(), "ns/c".to_owned());
        self.and(Event::ControlPlane(ControlPlane { name, cluster, ..ControlPlane::default() }))
    }

    pub(super) fn write(mut self, verb: &str, resource: &str, name: &str) -> Self {
        self.writes.push(Write {
            at: self.at,
            ours: true,
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            code: 200,
            ..Write::default()
        });
        self
    }

    /// A person writes something.
    pub(super) fn by_hand(mut self, verb: &str, resource: &str, name: &str) -> Self {
        self = self.write(verb, resource, name);
        if let Some(write) = self.writes.last_mut() {
            (write.ours, write.by_hand) = (false, true);
        }
        self
    }

    /// Names of the rules that find something, without duplicates.
    pub(super) fn found(self) -> Vec<&'static str> {
        let story = self.and(Event::Ended);
        let mut found: Vec<_> = check(&story.lines, &story.writes).iter().map(|violation| violation.rule).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}
