//! Percentiles of measurements.

/// The smallest of the values in `sorted` that at least `percent` % of them do not exceed; `None` if there are no
/// values.
pub(crate) fn percentile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_of_few_is_one_of_them() {
        assert_eq!([1, 50, 99].map(|percent| percentile(&[1.0, 2.0, 3.0], percent)), [1.0, 2.0, 3.0].map(Some));
        assert_eq!(percentile::<f64>(&[], 99), None);
    }
}
