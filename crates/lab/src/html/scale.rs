//! From values to places in a drawing.

/// The width of every drawing, in its own units; it is scaled to the page.
pub(super) const WIDTH: f64 = 640.0;
/// What stays free at the sides, for the labels at the ends of an axis.
pub(super) const MARGIN: f64 = 40.0;

/// A logarithmic or linear axis.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Values between the smallest and the largest of `values`, and a twentieth more, lie between
    /// `from` and `to`.
    pub(super) fn over(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Self {
        let finite = values.into_iter().filter(|value| value.is_finite());
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if low > high {
            return Self { low: 0.0, high: 1.0, from, to };
        }
        let more = if low == high { low.abs().max(1.0) / 100.0 } else { (high - low) / 20.0 };
        Self { low: low - more, high: high + more, from, to }
    }

    /// Where a value lies; infinite ones at the ends.
    pub(super) fn at(self, value: f64) -> f64 {
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    /// The values at both ends.
    pub(super) const fn ends(self) -> [f64; 2] {
        [self.low, self.high]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_between_the_ends() {
        let scale = Scale::over([1.0, 3.0, f64::INFINITY], 0.0, 110.0);
        assert_eq!([1.0, 2.0, 3.0].map(|v| scale.at(v).round()), [5.0, 55.0, 105.0]);
        assert_eq!([f64::INFINITY, -9.0].map(|v| scale.at(v)), [110.0, 0.0]);
        assert_eq!(Scale::over([2.0, 2.0], 0.0, 10.0).at(2.0), 5.0);
        assert_eq!(Scale::over([], 0.0, 10.0).ends(), [0.0, 1.0]);
    }
}
