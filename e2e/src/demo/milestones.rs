//! When each milestone was reached, from the apply on.

use std::time::Duration;

/// The milestones, in the order in which they were reached.
#[derive(Debug, Default)]
pub struct Milestones(Vec<(String, Duration)>);

impl Milestones {
    /// Records that a milestone is reached. One that was reached before keeps its time.
    pub fn reach(&mut self, what: &str, elapsed: Duration) {
        if self.when(what).is_none() {
            self.0.push((what.to_owned(), elapsed));
        }
    }

    /// When a milestone was reached; `None` if it was not.
    #[must_use]
    pub fn when(&self, what: &str) -> Option<Duration> {
        self.0.iter().find(|(known, _)| known == what).map(|(_, elapsed)| *elapsed)
    }

    /// A table of each milestone, when it was reached, and how long after the one before. The last line names the
    /// slowest part.
    #[must_use]
    pub fn table(&self) -> Vec<String> {
        let mut before = Duration::ZERO;
        let mut slowest: Option<(&str, Duration)> = None;
        let mut lines = Vec::new();
        for (what, elapsed) in &self.0 {
            let part = elapsed.saturating_sub(before);
            before = *elapsed;
            lines.push(format!("  apply → {what:<32} {:>5.1} s   +{:.1} s", elapsed.as_secs_f32(), part.as_secs_f32()));
            if slowest.is_none_or(|(_, longest)| part > longest) {
                slowest = Some((what, part));
            }
        }
        lines.extend(slowest.map(|(what, part)| format!("  slowest part: {what}, {:.1} s", part.as_secs_f32())));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_parts_and_the_slowest_of_them() {
        let mut milestones = Milestones::default();
        for (what, seconds) in [("member 1 healthy", 9), ("member 2 healthy", 20), ("member 1 healthy", 30)] {
            milestones.reach(what, Duration::from_secs(seconds));
        }
        let table = milestones.table();
        assert_eq!(table.len(), 3, "{table:?}");
        assert!(table[0].contains("member 1 healthy") && table[0].ends_with("  9.0 s   +9.0 s"), "{table:?}");
        assert_eq!(table[2], "  slowest part: member 2 healthy, 11.0 s");
    }
}
