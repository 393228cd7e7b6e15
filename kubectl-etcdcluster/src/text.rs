//! Times, sizes and columns for users. Pure.

use k8s_openapi::jiff::Timestamp;

/// How times are shown.
#[derive(Clone, Copy, Debug)]
pub enum Times {
    /// As ages at this moment, such as `5m`.
    Ages(Timestamp),
    /// As absolute times: the output stays true, and lines change only when something has happened.
    Points,
}

impl Times {
    /// How long something has been so, or since when.
    #[must_use]
    pub fn since(self, since: Timestamp) -> String {
        match self {
            Self::Ages(now) => format!("for {}", span(now.as_second() - since.as_second())),
            Self::Points => format!("since {since:.0}"),
        }
    }

    /// How long ago something happened, or when.
    #[must_use]
    pub fn ago(self, at: Timestamp) -> String {
        match self {
            Self::Ages(now) => format!("{} ago", span(now.as_second() - at.as_second())),
            Self::Points => format!("at {at:.0}"),
        }
    }

    /// A time to come.
    #[must_use]
    pub fn at(self, at: Timestamp) -> String {
        match self {
            Self::Ages(now) if at > now => format!("at {at:.0} (in {})", span(at.as_second() - now.as_second())),
            _ => format!("at {at:.0}"),
        }
    }
}

/// Seconds in kubectl's format for ages: one unit or two, such as `5m` or `2d5h`.
#[must_use]
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: char, small: i64, rest: char| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{rest}"),
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if hours < 3 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if days < 2 => format!("{hours}h"),
        () if days < 8 => two(days, 'd', hours % 24, 'h'),
        () => format!("{days}d"),
    }
}

/// Bytes, such as `20 KiB` or `1.2 GiB`.
#[must_use]
pub fn bytes(bytes: i64) -> String {
    let units = ["KiB", "MiB", "GiB"];
    let power = (1..=units.len()).rev().find(|power| bytes >= 1 << (10 * power));
    match power {
        None => format!("{bytes} B"),
        Some(power) => {
            // In tenths, rounded down.
            let tenths = i128::from(bytes) * 10 / (1 << (10 * power));
            let unit = units[power - 1];
            if tenths < 100 && tenths % 10 != 0 {
                format!("{}.{} {unit}", tenths / 10, tenths % 10)
            } else {
                format!("{} {unit}", tenths / 10)
            }
        }
    }
}

/// A number with its noun, such as `1 Machine` and `3 Machines`.
#[must_use]
pub fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Rows as lines with aligned columns. A column that is empty below its header is left out.
#[must_use]
pub fn columns(rows: &[Vec<String>]) -> Vec<String> {
    let most = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
    let width = |column: usize| rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0);
    let shown: Vec<(usize, usize)> = (0..most)
        .filter(|column| rows.iter().skip(1).any(|row| !cell(row, *column).is_empty()))
        .map(|column| (column, width(column)))
        .collect();
    let line = |row: &Vec<String>| {
        let cells = shown.iter().map(|(column, width)| format!("{:<width$}", cell(row, *column)));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_those_of_kubectl() {
        for (seconds, shown) in [
            (-5, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (600, "10m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (40_000, "11h"),
            (190_000, "2d4h"),
            (900_000, "10d"),
        ] {
            assert_eq!(span(seconds), shown, "{seconds}");
        }
    }

    #[test]
    fn sizes_have_two_digits_at_least() {
        let kib = 1024;
        for (size, shown) in
            [(512, "512 B"), (20 * kib, "20 KiB"), (1_300_000, "1.2 MiB"), (2 << 30, "2 GiB"), (150 << 20, "150 MiB")]
        {
            assert_eq!(bytes(size), shown);
        }
    }

    #[test]
    fn an_empty_column_is_left_out() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let lines = columns(&[row(["A", "B", "C"]), row(["ä", "", "1"]), row(["bbb", "", ""])]);
        assert_eq!(lines, ["A    C", "ä    1", "bbb"]);
    }
}
