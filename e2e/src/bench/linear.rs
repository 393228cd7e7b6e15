//! Whether the manager's use grows linearly with the number of clusters: what one more cluster costs beside few, and
//! beside many.

use super::table::Table;

/// How much more one more cluster may cost between the largest numbers than between the smallest.
const GROWTH: f64 = 1.2;

/// One of the figures of a point, if the point has it.
type Figure = fn(&Point) -> Option<f64>;

/// What this many clusters cost.
pub(super) struct Point {
    pub(super) clusters: usize,
    /// With nothing to do.
    pub(super) idle: Used,
    /// With one of a hundred members failing. `None` if there are fewer members.
    pub(super) failing: Option<Used>,
}

/// What the manager used.
pub(super) struct Used {
    /// Milliseconds of processor time in a second.
    pub(super) processor: f64,
    /// MiB.
    pub(super) memory: f64,
}

/// Adds how much more one more cluster costs between the two largest numbers than between the two smallest. Adds
/// nothing if there are fewer than three different numbers.
pub(super) fn rows(points: &[Point], table: &mut Table) {
    let goal = format!("≤ {GROWTH}");
    let figures: [(&str, Figure); 4] = [
        ("idle: processor time", |point| Some(point.idle.processor)),
        ("idle: memory", |point| Some(point.idle.memory)),
        ("1 % of members frozen: processor time", |point| Some(point.failing.as_ref()?.processor)),
        ("1 % of members frozen: memory", |point| Some(point.failing.as_ref()?.memory)),
    ];
    for (what, figure) in figures {
        if let Some(growth) = growth(points, figure) {
            table.row(&format!("a further cluster, {what}, most to fewest"), format!("{growth:.2}"), &goal, "");
        }
    }
}

fn growth(points: &[Point], figure: impl Fn(&Point) -> Option<f64>) -> Option<f64> {
    let known = points.iter().filter_map(|point| Some((point.clusters, figure(point)?)));
    let mut known: Vec<(usize, f64)> = known.collect();
    known.sort_by_key(|(clusters, _)| *clusters);
    known.dedup_by_key(|(clusters, _)| *clusters);
    if known.len() < 3 {
        return None;
    }
    let further = |pair: &[(usize, f64)]| (pair[1].1 - pair[0].1) / count(pair[1].0 - pair[0].0);
    Some(further(&known[known.len() - 2..]) / further(&known[..2]))
}

#[expect(clippy::cast_precision_loss, reason = "thousands at most")]
fn count(clusters: usize) -> f64 {
    clusters as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points with this much memory while idle. While members fail, it is twice as much, if there are a hundred
    /// members.
    fn of(memory: impl Fn(f64) -> f64) -> Vec<Point> {
        let used = |memory| Used { processor: 0.0, memory };
        let point = |clusters| {
            let memory = memory(count(clusters));
            let failing = (clusters * 3 >= 100).then(|| used(2.0 * memory));
            Point { clusters, idle: used(memory), failing }
        };
        [2000, 10, 500, 100].into_iter().map(point).collect()
    }

    fn idle(point: &Point) -> Option<f64> {
        Some(point.idle.memory)
    }

    #[test]
    fn what_there_is_without_clusters_does_not_count() {
        let growth = |memory: &dyn Fn(f64) -> f64| growth(&of(memory), idle).unwrap();
        assert!((growth(&|clusters| 20.0 + clusters) - 1.0).abs() < 1e-9);
        assert!(growth(&|clusters| 20.0 + clusters * clusters) > 10.0);
    }

    #[test]
    fn two_numbers_do_not_tell() {
        assert!(growth(&of(|clusters| clusters)[..2], idle).is_none());
    }

    #[test]
    fn what_fails_is_judged_by_itself_and_from_a_hundred_members_on() {
        let failing = |point: &Point| Some(point.failing.as_ref()?.memory);
        let mut points = of(|clusters| clusters);
        assert!((growth(&points, failing).unwrap() - 1.0).abs() < 1e-9);
        points.retain(|point| point.clusters != 500);
        assert!(growth(&points, failing).is_none() && growth(&points, idle).is_some());
    }
}
