//! A table over time: a row for each result, as Apache Otava reads it, which finds the row from
//! which on a metric has changed.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::date::rfc3339;
use crate::record::{self, Header};
use crate::result::{BenchResult, Point};

/// Adds the row of a result to the CSV file at `path`, which is made with a heading where there is
/// none; unless the row of that time and build is there. The columns are `time` (when the record in
/// `directory` was begun, by the date of its plan's file), `build` (of the programs that ran), the
/// median of each side's metrics, and each ratio, which says how many times as good a side is as
/// its base, and which the machine's drift leaves alone.
///
/// # Errors
///
/// What reading and writing say. [`io::ErrorKind::InvalidData`] where the file has other columns,
/// or a last line without an end: it is left as it is.
pub fn add_to_history(
    path: &Path,
    directory: &Path,
    header: &Header,
    result: &BenchResult,
) -> io::Result<()> {
    let (names, values) = columns(directory, header, result)?;
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    let mut kept = String::new();
    file.rewind()?;
    file.read_to_string(&mut kept)?;
    let heading = line(&names)?;
    let mut added = String::new();
    if kept.is_empty() {
        added.push_str(&heading);
    } else if !kept.starts_with(&heading) || !kept.ends_with('\n') {
        let what = "it has other columns, or a last line without an end; each bench needs a file \
                    of its own";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    // The record's row may be there: it was judged again, or gone on with.
    if kept.lines().any(|row| row.starts_with(&format!("{},{},", values[0], values[1]))) {
        return Ok(());
    }
    added.push_str(&line(&values)?);
    file.write_all(added.as_bytes()).inspect_err(|_| {
        // Half a row would spoil the file; if this fails as well, the next call says so.
        let _ = file.set_len(kept.len() as u64);
    })
}

/// The names of the columns, and the values of the row.
fn columns(
    directory: &Path,
    header: &Header,
    result: &BenchResult,
) -> io::Result<(Vec<String>, Vec<String>)> {
    let build = header.build.clone().unwrap_or_default();
    let time = rfc3339(record::begun(directory)?);
    let mut columns = vec![("time".to_owned(), time), ("build".to_owned(), build)];
    let points = result.summary.iter().map(|line| &line.point);
    let at = |point: &Point| point.apart(points.clone()).suffix();
    for line in &result.summary {
        let name = format!("{}.{}{}", line.label, line.metric, at(&line.point));
        columns.push((name, line.median.to_string()));
    }
    for line in &result.comparisons {
        let name = format!("{}/{}.{}{}", line.label, line.base, line.metric, at(&line.point));
        let ratio = line.ratio.ok_or_else(|| {
            let what = format!("the ratio {name} is infinite or unknown, which no row can hold");
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        columns.push((name, format!("{ratio:.6}")));
    }
    Ok(columns.into_iter().unzip())
}

fn line(values: &[String]) -> io::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(values)?;
    let bytes = writer.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
    String::from_utf8(bytes).map_err(io::Error::other)
}
