//! The output of other people's benchmarks, read as it is. One file a format.
//!
//! A run of a benchmark program is one round here, whatever the program repeats inside: what it
//! prints as its own figure is one measurement. Its own intervals are not used; they do not know
//! what differs from process to process.

mod criterion;
mod go;
mod google_benchmark;
mod hyperfine;

use crate::statistics::{Better, summary};

/// One figure of a benchmark.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    /// The benchmark, with the unit last.
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) better: Better,
}

/// A format that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Rust's criterion.
    Criterion,
    /// Go's testing package (`go test -bench`).
    Go,
    /// Google Benchmark's table or JSON.
    GoogleBenchmark,
    /// hyperfine's text, or its JSON where that goes to standard output.
    Hyperfine,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Criterion, Self::Go, Self::GoogleBenchmark, Self::Hyperfine];

    /// As the command line names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Criterion => "criterion",
            Self::Go => "go",
            Self::GoogleBenchmark => "google-benchmark",
            Self::Hyperfine => "hyperfine",
        }
    }

    /// The format in which `output` holds figures, if it is one.
    pub(crate) fn of(output: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| !format.read(output).is_empty())
    }

    /// All figures in `output`; of a benchmark that was run several times, the median.
    pub(crate) fn read(self, output: &str) -> Vec<Reading> {
        let all = match self {
            Self::Criterion => criterion::read(output),
            Self::Go => go::read(output),
            Self::GoogleBenchmark => google_benchmark::read(output),
            Self::Hyperfine => hyperfine::read(output),
        };
        let mut once: Vec<Reading> = Vec::new();
        for reading in &all {
            if once.iter().any(|other| other.name == reading.name) {
                continue;
            }
            let same = all.iter().filter(|other| other.name == reading.name);
            let values: Vec<f64> = same.map(|other| other.value).collect();
            let value = summary(&values).map_or(reading.value, |found| found.median);
            once.push(Reading { value, ..reading.clone() });
        }
        once
    }
}

/// Nanoseconds of a time with its unit.
fn nanoseconds(value: &str, unit: &str) -> Option<f64> {
    let factor = match unit {
        "ps" => 1e-3,
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        _ => return None,
    };
    Some(value.parse::<f64>().ok()? * factor)
}

/// A time in nanoseconds.
fn time(benchmark: &str, value: f64) -> Reading {
    Reading { name: format!("{benchmark} ns"), value, better: Better::Lower }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> (Option<Format>, Vec<(String, f64, Better)>) {
        let format = Format::of(output);
        let readings = format.map_or_else(Vec::new, |format| format.read(output));
        (format, readings.into_iter().map(|it| (it.name, it.value, it.better)).collect())
    }

    fn lower(name: &str, value: f64) -> (String, f64, Better) {
        (name.to_owned(), value, Better::Lower)
    }

    #[test]
    fn criterions_output_is_read() {
        // criterion 0.5.1 in a pipe.
        let output = "\
Benchmarking fib 20
fib 20                  time:   [26.029 µs 26.251 µs 26.505 µs]
                        change: [-38.292% -37.342% -36.524%] (p = 0.00 < 0.05)
                        Performance has improved.
Found 8 outliers among 100 measurements (8.00%)
a benchmark whose name is long/4096
                        time:   [1.4170 ms 1.5000 ms 1.6213 ms]
                        thrpt:  [3.8250 MiB/s 3.8335 MiB/s 3.8410 MiB/s]
";
        let expected = vec![
            lower("fib 20 ns", 26_251.0),
            lower("a benchmark whose name is long/4096 ns", 1_500_000.0),
        ];
        assert_eq!(read(output), (Some(Format::Criterion), expected));
    }

    #[test]
    fn gos_output_is_read() {
        let output = "\
goos: linux
pkg: example.com/x
BenchmarkDecode-8   \t    1000\t   1200.5 ns/op\t  56.1 MB/s\t   64 B/op\t   2 allocs/op
BenchmarkDecode-8   \t    1000\t   1300 ns/op\t  56.3 MB/s\t   64 B/op\t   2 allocs/op
PASS
ok  \texample.com/x\t2.1s
";
        let expected = vec![
            lower("Decode-8 ns/op", 1250.25),
            ("Decode-8 MB/s".to_owned(), 56.2, Better::Higher),
            lower("Decode-8 B/op", 64.0),
            lower("Decode-8 allocs/op", 2.0),
        ];
        assert_eq!(read(output), (Some(Format::Go), expected));
    }

    #[test]
    fn google_benchmarks_table_and_json_are_read() {
        let table = "\
2026-11-20T10:00:00+00:00
Running ./bench
-----------------------------------------------------
Benchmark           Time             CPU   Iterations
-----------------------------------------------------
BM_Insert/1024  106716 ns       100000 ns         7452 bytes_per_second=36.5384Mi/s
BM_Find             12 us           11 us        50000
";
        let expected = vec![
            lower("BM_Insert/1024 ns", 106_716.0),
            lower("BM_Insert/1024 CPU ns", 100_000.0),
            lower("BM_Find ns", 12_000.0),
            lower("BM_Find CPU ns", 11_000.0),
        ];
        assert_eq!(read(table), (Some(Format::GoogleBenchmark), expected.clone()));
        let json = r#"{"context": {"date": "x"}, "benchmarks": [
            {"name": "BM_Insert/1024", "run_type": "iteration", "real_time": 106.716,
             "cpu_time": 100.0, "time_unit": "us"},
            {"name": "BM_Insert/1024_mean", "run_type": "aggregate", "real_time": 1, "cpu_time": 1,
             "time_unit": "us"},
            {"name": "BM_Find", "run_type": "iteration", "real_time": 12, "cpu_time": 11,
             "time_unit": "us"}]}"#;
        assert_eq!(read(json), (Some(Format::GoogleBenchmark), expected));
    }

    #[test]
    fn hyperfines_text_and_json_are_read() {
        let text = "\
Benchmark 1: sleep 0.1
  Time (mean ± σ):     102.3 ms ±   0.4 ms    [User: 1.0 ms, System: 0.9 ms]
  Range (min … max):   101.6 ms … 103.0 ms    28 runs
";
        let expected = vec![lower("sleep 0.1 ns", 102_300_000.0)];
        assert_eq!(read(text), (Some(Format::Hyperfine), expected));
        let json = r#"{"results": [{"command": "sleep 0.1", "mean": 0.11, "median": 0.1023}]}"#;
        let expected = vec![lower("sleep 0.1 ns", 0.1023 * 1e9)];
        assert_eq!(read(json), (Some(Format::Hyperfine), expected));
    }

    #[test]
    fn other_output_is_no_benchmarks() {
        let others =
            ["", "hello", "{\"benchmarks\": 3}", "time: 5", "Benchmark 1: x\n", "BenchmarkX 1 2"];
        for output in others {
            assert_eq!(read(output), (None, vec![]), "{output}");
        }
    }
}
