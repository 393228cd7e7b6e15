//! Whether the manager grows in a line with the number of clusters: what a further one costs beside few, and beside many.

use super::table::Table;

/// How much more a further cluster may cost beside the most than beside the fewest.
const GROWTH: f64 = 1.2;

/// One of the figures of a point.
type Figure = fn(&Point) -> f64;

/// What so many clusters have cost.
pub(super) struct Point {
    pub(super) clusters: usize,
    /// Milliseconds of processor time in a second, with nothing to do.
    pub(super) processor: f64,
    /// MiB.
    pub(super) memory: f64,
}

/// Adds how much more a further cluster costs between the two largest numbers than between the two smallest. Nothing where
/// there are fewer than three of different numbers.
pub(super) fn rows(points: &[Point], table: &mut Table) {
    let goal = format!("≤ {GROWTH}");
    let figures: [(&str, Figure); 2] = [("processor time", |point| point.processor), ("memory", |point| point.memory)];
    for (what, figure) in figures {
        if let Some(growth) = growth(points, figure) {
            table.row(&format!("a further cluster, idle: {what}, most to fewest"), format!("{growth:.2}"), &goal, "");
        }
    }
}

fn growth(points: &[Point], figure: impl Fn(&Point) -> f64) -> Option<f64> {
    let mut sorted: Vec<&Point> = points.iter().collect();
    sorted.sort_by_key(|point| point.clusters);
    sorted.dedup_by_key(|point| point.clusters);
    if sorted.len() < 3 {
        return None;
    }
    let further = |pair: &[&Point]| (figure(pair[1]) - figure(pair[0])) / count(pair[1].clusters - pair[0].clusters);
    Some(further(&sorted[sorted.len() - 2..]) / further(&sorted[..2]))
}

#[expect(clippy::cast_precision_loss, reason = "thousands at most")]
fn count(clusters: usize) -> f64 {
    clusters as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(memory: impl Fn(f64) -> f64) -> Vec<Point> {
        let point = |clusters| Point { clusters, processor: 0.0, memory: memory(count(clusters)) };
        [2000, 10, 100].into_iter().map(point).collect()
    }

    #[test]
    fn what_there_is_without_clusters_does_not_count() {
        let growth = |memory: &dyn Fn(f64) -> f64| growth(&of(memory), |point| point.memory).unwrap();
        assert!((growth(&|clusters| 20.0 + clusters) - 1.0).abs() < 1e-9);
        assert!(growth(&|clusters| 20.0 + clusters * clusters) > 10.0);
    }

    #[test]
    fn two_numbers_do_not_tell() {
        assert!(growth(&of(|clusters| clusters)[..2], |point| point.memory).is_none());
    }
}
