//! Visits every reachable state, breadth first, so the path to a broken rule is a shortest one.

use crate::moves::{Move, moves};
use crate::rules::{self, Broken};
use crate::state::{Lag, State};
use crate::view::{Book, explain};
use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How far a search goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub states: usize,
    /// Mebibytes, as far as the contents of the search show them.
    pub mib: usize,
    pub seconds: u64,
}

/// What was found.
pub struct Report {
    pub states: usize,
    pub moves: usize,
    pub mib: usize,
    /// How many different views the planner was asked about.
    pub views: usize,
    pub took: Duration,
    /// The rule that is broken, and the path to it.
    pub broken: Option<String>,
    /// The bound that ended the search, if there is more to see. Then it is not judged whether every run ends.
    pub cut: Option<String>,
}

impl Report {
    pub fn figures(&self) -> String {
        let (states, moves, views, mib) = (self.states, self.moves, self.views, self.mib);
        let (took, cut) = (self.took.as_secs_f64(), self.cut.as_deref().unwrap_or_default());
        format!("{states} states, {moves} moves, {views} views planned, {mib} MiB, {took:.1} s{cut}")
    }
}

struct Graph {
    states: Vec<Rc<State>>,
    numbers: HashMap<Rc<State>, u32>,
    /// How each state was first reached.
    reached: Vec<Option<(u32, Move)>>,
    /// Fair moves, each from a state to a state.
    fair: Vec<(u32, u32)>,
    may_end: Vec<bool>,
    moves: usize,
}

impl Graph {
    fn number(&mut self, state: State, from: Option<(u32, Move)>) -> u32 {
        if let Some(number) = self.numbers.get(&state) {
            return *number;
        }
        let (number, state) = (u32::try_from(self.states.len()).expect("too many states"), Rc::new(state));
        self.states.push(state.clone());
        self.numbers.insert(state, number);
        self.reached.push(from);
        number
    }

    /// About how much memory the search takes, including what [`unending`] makes of it. Every list keeps room for more.
    fn mib(&self, book: &Book) -> usize {
        let entry = size_of::<State>() + 2 * size_of::<Option<(u32, Move)>>() + 192;
        (self.states.len() * entry + self.fair.len() * 3 * size_of::<(u32, u32)>() + book.bytes()) >> 20
    }

    /// In how many moves a state was first reached.
    fn depth(&self, number: u32) -> usize {
        std::iter::successors(Some(number), |at| self.reached[*at as usize].map(|(before, _)| before)).count() - 1
    }

    /// The path to a state, for people.
    fn way(&self, book: &mut Book, number: u32) -> String {
        let (mut way, mut at) = (Vec::new(), number);
        while let Some((before, done)) = self.reached[at as usize] {
            way.push((before, done, at));
            at = before;
        }
        let mut text = format!("from {:?}\n", self.states[at as usize]);
        for (before, done, after) in way.into_iter().rev() {
            let (before, after) = (&self.states[before as usize], &self.states[after as usize]);
            let lags = |state: &State| !matches!(state.lag, Lag::None);
            let lag = match (lags(before), &after.lag) {
                (false, Lag::Machines(_)) => ", which the watch of Machines does not show",
                (false, Lag::Secrets(_)) => ", which the watch of Secrets does not show",
                (false, Lag::Etcd(_)) => ", which the watch of EtcdClusters does not show",
                (false, Lag::Probes(_)) => ", which the prober does not know",
                (false, Lag::List(_)) => ", and the prober has the member list of before",
                _ => "",
            };
            let plans = if matches!(done, Move::Reconcile(_) | Move::Pause) {
                let plan = explain(book, before);
                format!(": {}", plan.chars().take(160).collect::<String>())
            } else {
                String::new()
            };
            let _ = writeln!(text, "  {done:?}{lag}{plans}");
        }
        text
    }
}

/// How a search has ended.
enum End {
    /// Everything was seen, and no rule is broken in any state.
    All,
    Broken(String),
    Cut(String),
}

/// Explores everything that can follow from these states, as far as the bounds allow.
pub fn explore(starts: &[State], bounds: Bounds) -> Report {
    let (begun, mut book) = (Instant::now(), Book::new());
    let (states, numbers, reached) = (Vec::new(), HashMap::new(), Vec::new());
    let mut graph = Graph { states, numbers, reached, fair: Vec::new(), may_end: Vec::new(), moves: 0 };
    for start in starts {
        graph.number(*start, None);
    }
    let (broken, cut) = match search(&mut graph, &mut book, bounds, begun) {
        End::All => (unending(&graph, &mut book), None),
        End::Broken(broken) => (Some(broken), None),
        End::Cut(cut) => (None, Some(cut)),
    };
    let (states, moves, views, mib) = (graph.states.len(), graph.moves, book.len(), graph.mib(&book));
    Report { states, moves, mib, views, took: begun.elapsed(), broken, cut }
}

/// How many states it visits before it reads the clock again.
const STATES_AT_A_TIME: usize = 1_024;

fn search(graph: &mut Graph, book: &mut Book, bounds: Bounds, begun: Instant) -> End {
    let mut at = 0;
    while at < graph.states.len() {
        let is_late = at.is_multiple_of(STATES_AT_A_TIME)
            && (begun.elapsed().as_secs() >= bounds.seconds || graph.mib(book) >= bounds.mib);
        if is_late || graph.states.len() > bounds.states {
            let depth = graph.depth(u32::try_from(at).expect("numbered"));
            return End::Cut(format!(", CUT: all within {depth} moves, and no more than {bounds:?}"));
        }
        let (number, state) = (u32::try_from(at).expect("numbered"), graph.states[at].clone());
        graph.may_end.push(rules::may_end(&state, book.decide(&state.cached())));
        let next = match moves(&state, book) {
            Ok(next) => next,
            Err((done, Broken(rule))) => {
                let way = graph.way(book, number);
                let plan = explain(book, &state);
                return End::Broken(format!("{rule}\n{way}  {done:?}: {plan}\n in {state:?}"));
            }
        };
        graph.moves += next.len();
        for next in next {
            let to = graph.number(next.state, Some((number, next.done)));
            if next.is_fair {
                graph.fair.push((number, to));
            }
        }
        at += 1;
    }
    End::All
}

/// Finds a state from which no fair run ends. Every fair move happens some day, so a run that can always still reach an
/// end does reach one.
fn unending(graph: &Graph, book: &mut Book) -> Option<String> {
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); graph.states.len()];
    for (from, to) in &graph.fair {
        before[*to as usize].push(*from);
    }
    let mut ends = graph.may_end.clone();
    let mut open: Vec<usize> = (0..ends.len()).filter(|at| ends[*at]).collect();
    while let Some(at) = open.pop() {
        for from in &before[at] {
            if !std::mem::replace(&mut ends[*from as usize], true) {
                open.push(*from as usize);
            }
        }
    }
    let stuck = ends.iter().position(|ends| !ends)?;
    let (way, state) = (graph.way(book, u32::try_from(stuck).ok()?), &graph.states[stuck]);
    let count = ends.iter().filter(|ends| !**ends).count();
    let plan = explain(book, state);
    Some(format!("{count} states from which no run ends as wanted\n{way}  then {plan}\n in {state:?}"))
}
