//! Holm's step-down procedure over the cells of a sweep.

/// What one cell may claim within its family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HolmStep {
    /// The error that this cell's interval and verdict are given at. A cell that is told apart has
    /// the level of its own step; all others have that of the step at which the procedure stopped,
    /// where none of them would have been told apart either.
    pub alpha: f64,
    /// Whether the cell is told apart from "no difference" while the whole family keeps its error.
    pub rejected: bool,
}

/// The steps of cells with these p-values, in their order. The chance that any cell in which
/// nothing differs is told apart is at most `alpha`, however the cells hang together.
pub fn holm(p_values: &[f64], alpha: f64) -> Vec<HolmStep> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut steps = vec![HolmStep { alpha, rejected: false }; p_values.len()];
    let mut stopped = None;
    for (rank, &cell) in order.iter().enumerate() {
        let level = stopped.unwrap_or(alpha / (p_values.len() - rank) as f64);
        let rejected = stopped.is_none() && p_values[cell] <= level;
        if !rejected {
            stopped = Some(level);
        }
        steps[cell] = HolmStep { alpha: level, rejected };
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(p_values: &[f64]) -> Vec<bool> {
        holm(p_values, 0.05).iter().map(|step| step.rejected).collect()
    }

    #[test]
    fn holms_steps_are_those_of_the_textbook() {
        // The levels for four cells are 0.0125, 0.01667, 0.025, 0.05; 0.03 > 0.025 stops it.
        assert_eq!(rejected(&[0.01, 0.04, 0.03, 0.005]), [true, false, false, true]);
        // Bonferroni would have kept the second from being told apart.
        assert_eq!(rejected(&[0.01, 0.016]), [true, true]);
        assert_eq!(rejected(&[0.051]), [false]);
        assert_eq!(rejected(&[]), Vec::<bool>::new());
    }

    #[test]
    fn cells_reject_exactly_at_their_level() {
        let p_values = [0.001, 0.2, 0.012, 0.04, 0.017, 0.03];
        for (p, step) in p_values.iter().zip(holm(&p_values, 0.05)) {
            assert_eq!(step.rejected, *p <= step.alpha, "p {p} at {}", step.alpha);
        }
    }
}
