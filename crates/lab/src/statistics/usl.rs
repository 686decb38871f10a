//! How throughput grows with the load: the universal scalability law (Gunther 1993, 2008).
//!
//! X(N) = λN / (1 + σ(N−1) + κN(N−1)). λ is what one thread does alone; σ, *contention*, is the
//! share that no two do at once; κ, *crosstalk*, what each pair costs each other, for which
//! throughput falls beyond a peak at √((1−σ)/κ).
//!
//! **The fit.** Turned round the law is linear: what one of N threads takes for a unit of work is
//!
//! N/X(N) = a + b(N−1) + cN(N−1), with a = 1/λ, σ = b/a, κ = c/a,
//!
//! fitted by least squares of *relative* errors, because a machine's noise is a share of what is
//! measured: a load that does ten times as much does not count ten times. As it is linear, parts
//! that add up to N/X have coefficients that add up to these.
//!
//! **The interval.** The residuals of one fit say little: they are few, and what drifts moves
//! neighbouring loads alike. But each round measures every load, so each round is a fit of its own.
//! The estimate is the Hodges–Lehmann median of theirs, the interval the exact signed-rank one. Of
//! the noise in each, the simulation says how often these cover the truth.

use serde::{Deserialize, Serialize};

use super::{ALPHA, Pairs};

/// Fewer loads than this determine the three parameters without a test of the law.
pub const LOADS_MIN: usize = 4;

/// The three coefficients of N/X(N).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Coefficients {
    /// Of 1: what one takes alone.
    pub alone: f64,
    /// Of N − 1.
    pub contention: f64,
    /// Of N(N − 1).
    pub crosstalk: f64,
}

/// An estimate with its interval of 95 %. `None` stands for infinite, or, of both ends, for too few
/// rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The estimate.
    pub value: Option<f64>,
    /// The interval's lower end.
    pub low: Option<f64>,
    /// The interval's upper end.
    pub high: Option<f64>,
}

/// The law's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Usl {
    /// Throughput of one alone.
    pub lambda: Estimate,
    /// Contention.
    pub sigma: Estimate,
    /// Crosstalk.
    pub kappa: Estimate,
    /// The load of the highest throughput; infinite without crosstalk.
    pub peak: Estimate,
    /// How many rounds were fitted.
    pub rounds: usize,
}

impl Coefficients {
    /// Fits `parts`, one for each load, where the whole is N/X. Relative errors of the whole are
    /// least, so the coefficients of parts add up to those of their sum. `None` where the loads do
    /// not determine them.
    pub fn fit(loads: &[f64], wholes: &[f64], parts: &[f64]) -> Option<Self> {
        let rows: Vec<[f64; 4]> = loads
            .iter()
            .zip(wholes)
            .zip(parts)
            .map(|((&n, &whole), &part)| [1.0, n - 1.0, n * (n - 1.0), part].map(|x| x / whole))
            .collect();
        if rows.iter().flatten().any(|x| !x.is_finite()) {
            return None;
        }
        let [alone, contention, crosstalk] = least_squares(&rows)?;
        Some(Self { alone, contention, crosstalk })
    }

    /// N/X(N).
    pub fn at(&self, load: f64) -> f64 {
        let others = load - 1.0;
        self.alone + self.contention * others + self.crosstalk * load * others
    }
}

impl Usl {
    /// Fits `rounds`, each the throughput at every one of `loads`. `None` where there are fewer
    /// than [`LOADS_MIN`] loads or no round can be fitted.
    pub fn fit(loads: &[f64], rounds: &[Vec<f64>]) -> Option<Self> {
        if loads.len() < LOADS_MIN {
            return None;
        }
        let of_round = |throughput: &Vec<f64>| {
            let wholes: Vec<f64> = loads.iter().zip(throughput).map(|(n, x)| n / x).collect();
            Coefficients::fit(loads, &wholes, &wholes).filter(|found| found.alone > 0.0)
        };
        let fits: Vec<Coefficients> = rounds.iter().filter_map(of_round).collect();
        let of = |parameter: fn(&Coefficients) -> f64| {
            Estimate::of(&fits.iter().map(parameter).collect::<Vec<f64>>())
        };
        // What varies by shares is symmetric in its logarithm.
        let of_log = |parameter: fn(&Coefficients) -> f64| {
            let logs: Vec<f64> = fits.iter().map(|fit| parameter(fit).ln()).collect();
            Estimate::of(&logs).map(f64::exp)
        };
        (!fits.is_empty()).then(|| Self {
            lambda: of_log(|fit| fit.alone.recip()),
            sigma: of(|fit| fit.contention / fit.alone),
            kappa: of(|fit| fit.crosstalk / fit.alone),
            peak: of_log(peak),
            rounds: fits.len(),
        })
    }

    /// The throughput that the estimates say, if they are finite.
    pub fn throughput(&self, load: f64) -> Option<f64> {
        let (lambda, sigma, kappa) = (self.lambda.value?, self.sigma.value?, self.kappa.value?);
        let others = load - 1.0;
        let throughput = lambda * load / (1.0 + sigma * others + kappa * load * others);
        (throughput > 0.0).then_some(throughput)
    }
}

/// √((1−σ)/κ), at least 1.
fn peak(fit: &Coefficients) -> f64 {
    if fit.crosstalk <= 0.0 {
        return f64::INFINITY;
    }
    ((fit.alone - fit.contention) / fit.crosstalk).max(1.0).sqrt()
}

impl Estimate {
    fn of(values: &[f64]) -> Self {
        let finite = |value: f64| value.is_finite().then_some(value);
        let pairs = Pairs::new(values);
        let interval = pairs.as_ref().and_then(|pairs| pairs.interval(ALPHA));
        Self {
            value: pairs.and_then(|pairs| finite(pairs.estimate())),
            low: interval.and_then(|interval| finite(interval.low)),
            high: interval.and_then(|interval| finite(interval.high)),
        }
    }

    fn map(self, change: fn(f64) -> f64) -> Self {
        let Self { value, low, high } = self;
        Self { value: value.map(change), low: low.map(change), high: high.map(change) }
    }
}

/// The x with the least sum of squares of `row[0..3] · x − row[3]`, by Householder's reflections.
fn least_squares(rows: &[[f64; 4]]) -> Option<[f64; 3]> {
    let mut rows = rows.to_vec();
    for column in 0..3 {
        let norm = rows.get(column..)?.iter().map(|row| row[column].powi(2)).sum::<f64>().sqrt();
        let all = rows.iter().map(|row| row[column].powi(2)).sum::<f64>().sqrt();
        // Nothing of it is left beside the columns before.
        if norm <= 1e-12 * all {
            return None;
        }
        let mut normal: Vec<f64> = rows[column..].iter().map(|row| row[column]).collect();
        normal[0] += norm.copysign(normal[0]);
        let length = normal.iter().map(|x| x * x).sum::<f64>();
        for of in column..4 {
            let along: f64 =
                normal.iter().zip(&rows[column..]).map(|(v, row)| v * row[of]).sum::<f64>();
            for (v, row) in normal.iter().zip(&mut rows[column..]) {
                row[of] -= 2.0 * along / length * v;
            }
        }
    }
    let mut found = [0.0; 3];
    for row in (0..3).rev() {
        let known: f64 = (row + 1..3).map(|column| rows[row][column] * found[column]).sum();
        found[row] = (rows[row][3] - known) / rows[row][row];
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(data: &[(f64, f64)]) -> Usl {
        let (loads, throughput): (Vec<f64>, Vec<f64>) = data.iter().copied().unzip();
        Usl::fit(&loads, &[throughput]).unwrap()
    }

    fn close(estimate: Estimate, expected: f64) {
        let value = estimate.value.unwrap();
        assert!((value / expected - 1.0).abs() < 1e-9, "{value} is not {expected}");
    }

    /// The data sets of R's package usl 3.0.2, and what R 4.2.2 says to
    /// `lm(N/X ~ I(N-1) + I(N*(N-1)), weights = (X/N)^2)`.
    #[test]
    fn fits_are_those_of_r() {
        let raytracer = fit(&[
            (1.0, 20.0),
            (4.0, 78.0),
            (8.0, 130.0),
            (12.0, 170.0),
            (16.0, 190.0),
            (20.0, 200.0),
            (24.0, 210.0),
            (28.0, 230.0),
            (32.0, 260.0),
            (48.0, 280.0),
            (64.0, 310.0),
        ]);
        close(raytracer.lambda, 21.7462350996);
        close(raytracer.sigma, 0.0568565284183);
        close(raytracer.kappa, 3.45475840529e-6);
        let specsdm91 = fit(&[
            (1.0, 64.9),
            (18.0, 995.9),
            (36.0, 1652.4),
            (72.0, 1853.2),
            (108.0, 1828.9),
            (144.0, 1775.0),
            (216.0, 1702.2),
        ]);
        close(specsdm91.lambda, 68.1607052155);
        close(specsdm91.sigma, 0.0133612545906);
        close(specsdm91.kappa, 1.1520259847e-4);
        close(specsdm91.peak, ((1.0 - 0.0133612545906_f64) / 1.1520259847e-4).sqrt());
        assert_eq!(specsdm91.sigma.low, None, "one round has no interval");
    }

    #[test]
    fn exact_law_is_found() {
        // The data of the package's own test, tests/coef.R: 0.02, 0.02 and 1.
        let loads = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0];
        let law = |n: f64| n / (1.0 + 0.02 * (n - 1.0) + 0.02 * n * (n - 1.0));
        let found = fit(&loads.map(|n| (n, law(n))));
        close(found.lambda, 1.0);
        close(found.sigma, 0.02);
        close(found.kappa, 0.02);
        close(found.peak, 7.0);
        assert!((found.throughput(10.0).unwrap() - law(10.0)).abs() < 1e-9);
        // Twice the threads, twice the work: neither contention nor crosstalk, and no peak.
        let linear = fit(&loads.map(|n| (n, 3.0 * n)));
        assert!(linear.sigma.value.unwrap().abs() < 1e-12, "{linear:?}");
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let loads = [1.0, 2.0, 4.0, 8.0, 16.0];
        let user = [3.0, 3.1, 3.3, 3.2, 3.9];
        let waiting = [0.1, 0.9, 2.0, 5.5, 9.0];
        let wholes: Vec<f64> = user.iter().zip(waiting).map(|(a, b)| a + b).collect();
        let whole = Coefficients::fit(&loads, &wholes, &wholes).unwrap();
        let parts = [&user, &waiting].map(|part| Coefficients::fit(&loads, &wholes, part).unwrap());
        let each: [fn(&Coefficients) -> f64; 3] = [|c| c.alone, |c| c.contention, |c| c.crosstalk];
        for of in each {
            assert!((of(&parts[0]) + of(&parts[1]) - of(&whole)).abs() < 1e-12);
        }
    }

    #[test]
    fn what_cannot_be_fitted_is_none() {
        assert_eq!(Usl::fit(&[1.0, 2.0, 4.0], &[vec![1.0; 3]]), None, "too few loads");
        let twice = [2.0, 2.0, 2.0, 2.0];
        assert_eq!(Usl::fit(&twice, &[vec![1.0; 4]]), None, "one load only");
        assert_eq!(Usl::fit(&[1.0, 2.0, 4.0, 8.0], &[vec![0.0; 4]]), None, "nothing was done");
        assert_eq!(Usl::fit(&[1.0, 2.0, 4.0, 8.0], &[]), None);
    }
}
