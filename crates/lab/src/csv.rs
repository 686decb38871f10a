//! All figures of a result as CSV: a line for each metric of each process.

use std::io;

use crate::result::BenchResult;

/// The lines, with a heading.
///
/// # Errors
///
/// What writing says; there is no reason for any.
pub fn csv(result: &BenchResult) -> io::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["round", "attempt", "side", "point", "metric", "value"])?;
    for round in &result.rounds {
        for (metric, value) in &round.metrics {
            writer.write_record([
                &round.round.to_string(),
                &round.attempt.to_string(),
                &round.label,
                &round.point.to_string(),
                metric,
                &value.to_string(),
            ])?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
    String::from_utf8(bytes).map_err(io::Error::other)
}
