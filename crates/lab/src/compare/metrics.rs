//! What is measured of a command: by the kernel, and in what it prints.

use regex::Regex;
use serde_json::Value;

use super::readers::{Format, Reading};
use crate::catalogue::Metric;
use crate::error::Error;
use crate::launch::Finished;
use crate::statistics::Better;

/// A figure in what a command prints.
#[derive(Debug, Clone)]
pub struct Source {
    name: String,
    better: Better,
    place: Place,
}

/// Where it stands.
#[derive(Debug, Clone)]
enum Place {
    /// The one match of a pattern in its output: the first group, or all of it.
    Pattern(Regex),
    /// In the JSON that it prints: fields and indexes, with dots between them.
    Json(String),
}

impl Source {
    /// `NAME=REGEX`: less is better, unless the name is that of a rate.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] where that is none.
    pub fn pattern(text: &str) -> Result<Self, Error> {
        let (name, pattern) = named(text).ok_or_else(|| {
            Error::usage(format!("--metric '{text}' has no pattern"), "give NAME=REGEX")
        })?;
        Self::matching(name, pattern, direction(name))
    }

    /// What `pattern` matches.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] where that is no regular expression.
    pub(crate) fn matching(name: &str, pattern: &str, better: Better) -> Result<Self, Error> {
        let pattern = Regex::new(pattern).map_err(|error| {
            // The crate draws where the fault is, over several lines; the last one says what it is.
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Error::usage(
                format!("metric {name}: '{pattern}' is no regular expression: {why}"),
                "see https://docs.rs/regex/#syntax",
            )
        })?;
        Ok(Self { name: name.to_owned(), better, place: Place::Pattern(pattern) })
    }

    /// `PATH` or `NAME=PATH`; the name is the path's last field unless told. Less is better, unless
    /// it ends in `_per_s`.
    pub fn json(text: &str) -> Self {
        let last = text.rsplit('.').next().unwrap_or(text);
        let (name, path) = named(text).unwrap_or((last, text));
        Self::at(name, path, direction(name))
    }

    /// What stands at `path` in the JSON.
    pub(crate) fn at(name: &str, path: &str, better: Better) -> Self {
        Self { name: name.to_owned(), better, place: Place::Json(path.to_owned()) }
    }

    /// The metric's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which side of it is better.
    pub fn better(&self) -> Better {
        self.better
    }

    /// Its value in what a command has printed.
    fn read(&self, finished: &Finished) -> Result<f64, String> {
        let name = &self.name;
        match &self.place {
            Place::Pattern(pattern) => {
                let outputs = [&*finished.stdout, &*finished.stderr];
                let mut found = outputs.into_iter().flat_map(|text| pattern.captures_iter(text));
                let first = found
                    .next()
                    .ok_or_else(|| format!("it printed no {name}: nothing matches '{pattern}'"))?;
                if let Some(second) = found.next() {
                    return Err(format!(
                        "it printed {name} twice: '{}' and '{}' match '{pattern}', which must \
                         match once",
                        &first[0], &second[0]
                    ));
                }
                let group = first.get(1).or_else(|| first.get(0)).map_or("", |it| it.as_str());
                let number = group.trim().parse();
                number.map_err(|_| format!("its {name} is '{group}', which is no number"))
            }
            Place::Json(path) => {
                let json = printed_json(&finished.stdout)
                    .ok_or_else(|| format!("it printed no JSON to find {path} in"))?;
                let value = path.split('.').try_fold(&json, |value, step| match value {
                    Value::Array(items) => items.get(step.parse::<usize>().ok()?),
                    value => value.get(step),
                });
                let value = value.ok_or_else(|| format!("its JSON has no {path}"))?;
                value.as_f64().ok_or_else(|| format!("its {name} is {value}, which is no number"))
            }
        }
    }
}

/// By the words of the name: a rate is the better, the more it is.
fn direction(name: &str) -> Better {
    const RATES: [&str; 7] = ["throughput", "bandwidth", "goodput", "iops", "qps", "rps", "tps"];
    let name = name.to_lowercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_alphanumeric()).collect();
    let is_per_second = name.ends_with("/s")
        || words
            .windows(2)
            .any(|pair| pair[0] == "per" && ["s", "sec", "second"].contains(&pair[1]));
    let is_rate = is_per_second || words.iter().any(|word| RATES.contains(word));
    if is_rate { Better::Higher } else { Better::Lower }
}

fn named(text: &str) -> Option<(&str, &str)> {
    text.split_once('=').filter(|(name, rest)| !name.is_empty() && !rest.is_empty())
}

/// All of the output, or else its last line that is not empty.
fn printed_json(output: &str) -> Option<Value> {
    let last = output.lines().rev().find(|line| !line.trim().is_empty())?;
    serde_json::from_str(output).or_else(|_| serde_json::from_str(last)).ok()
}

/// What the kernel counts of each command, with the direction in which it is better.
pub(crate) const COUNTED: [(&str, &str); 11] = [
    ("wall_s", "from the start of the process to its end"),
    ("cpu_s", "user and system CPU"),
    ("user_s", "CPU in user mode"),
    ("sys_s", "CPU in the kernel"),
    ("peak_bytes", "largest resident size"),
    ("minor_faults", "page faults that read nothing"),
    ("major_faults", "page faults that read storage"),
    ("context_switches", "voluntary context switches"),
    ("preemptions", "involuntary context switches"),
    ("read_bytes", "returned by read(2) and its kin, from caches, pipes and devices alike"),
    ("written_bytes", "given to write(2) and its kin, for caches, pipes and devices alike"),
];

/// The kernel's account of a finished command. The peak is left out where it is not above
/// `own_bytes`, the lab's own size: a process begins as a copy of its parent, and the kernel keeps
/// the peak over exec(2).
fn counted(finished: &Finished, own_bytes: u64) -> Vec<(&'static str, f64)> {
    let usage = &finished.usage;
    let mut values = vec![
        ("wall_s", finished.elapsed.as_secs_f64()),
        ("cpu_s", usage.cpu().as_secs_f64()),
        ("user_s", usage.user.as_secs_f64()),
        ("sys_s", usage.system.as_secs_f64()),
        ("minor_faults", usage.minor_faults as f64),
        ("major_faults", usage.major_faults as f64),
        ("context_switches", usage.voluntary_switches as f64),
        ("preemptions", usage.involuntary_switches as f64),
    ];
    if usage.max_rss_bytes > own_bytes {
        values.push(("peak_bytes", usage.max_rss_bytes as f64));
    }
    if let Some(io) = finished.io {
        values.push(("read_bytes", io.read as f64));
        values.push(("written_bytes", io.written as f64));
    }
    values
}

/// Where the figures of all commands come from, and which are judged.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    sources: Vec<Source>,
    format: Option<Format>,
    more_is_better: Vec<String>,
    /// What the first run printed in `format`.
    pub(crate) printed: Vec<Reading>,
}

impl Metrics {
    pub(crate) const fn new(
        sources: Vec<Source>,
        format: Option<Format>,
        more_is_better: Vec<String>,
    ) -> Self {
        Self { sources, format, more_is_better, printed: Vec::new() }
    }

    /// The figures of one finished command, each finite and not negative.
    pub(crate) fn read(
        &self,
        finished: &Finished,
        own_bytes: u64,
    ) -> Result<Vec<(String, f64)>, String> {
        let mut values: Vec<(String, f64)> = counted(finished, own_bytes)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        for source in &self.sources {
            values.push((source.name().to_owned(), source.read(finished)?));
        }
        if let Some(format) = self.format {
            let readings = format.read(&finished.stdout);
            let is_in = |all: &[Reading], name: &str| all.iter().any(|it| it.name == name);
            if let Some(lost) = self.printed.iter().find(|it| !is_in(&readings, &it.name)) {
                return Err(format!("it printed no '{}', as the first run did", lost.name));
            }
            let first_run = self.printed.is_empty();
            if let Some(new) =
                readings.iter().find(|it| !first_run && !is_in(&self.printed, &it.name))
            {
                return Err(format!("it printed '{}', which the first run did not", new.name));
            }
            values.extend(readings.into_iter().map(|it| (it.name, it.value)));
        }
        match values.iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0)) {
            Some((name, value)) => {
                Err(format!("its {name} is {value}; figures must be finite and not negative"))
            }
            None => Ok(values),
        }
    }

    /// All metrics, those of the kernel first. No two may have one name.
    pub(crate) fn all(&self) -> Result<Vec<Metric>, Error> {
        let metric = |name: &str, about: &str, better| Metric {
            name: name.to_owned(),
            about: about.to_owned(),
            better: if self.more_is_better.iter().any(|it| it == name) {
                Better::Higher
            } else {
                better
            },
        };
        let mut all: Vec<Metric> =
            COUNTED.iter().map(|(name, about)| metric(name, about, Better::Lower)).collect();
        for source in &self.sources {
            all.push(metric(source.name(), "printed by the command", source.better()));
        }
        for reading in &self.printed {
            all.push(metric(&reading.name, "printed by the command", reading.better));
        }
        for (index, metric) in all.iter().enumerate() {
            if all[..index].iter().any(|other| other.name == metric.name) {
                let what = format!("two metrics are called {}", metric.name);
                return Err(Error::usage(what, "give another name"));
            }
        }
        for name in &self.more_is_better {
            if all.iter().all(|metric| metric.name != *name) {
                return Err(Error::unknown("metric", name, all.iter().map(|it| &*it.name)));
            }
        }
        Ok(all)
    }

    /// What is judged unless told: what the commands print, or else wall and CPU time.
    pub(crate) fn primary(&self) -> Vec<String> {
        let printed = self.printed.iter().map(|it| it.name.clone());
        let given = self.sources.iter().map(|source| source.name().to_owned());
        let all: Vec<String> = given.chain(printed).collect();
        if all.is_empty() { vec!["wall_s".to_owned(), "cpu_s".to_owned()] } else { all }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::launch::Ending;

    fn printed(stdout: &str, stderr: &str) -> Finished {
        Finished {
            ending: Ending::TimedOut,
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            digest: 0,
            usage: Default::default(),
            io: None,
            elapsed: Duration::from_millis(5),
            out_of_memory: false,
        }
    }

    fn read(source: &Source, stdout: &str) -> Result<f64, String> {
        source.read(&printed(stdout, ""))
    }

    #[test]
    fn rates_are_known_by_their_names() {
        for name in ["ops_per_s", "ops_per_sec", "Decode MB/s", "throughput", "db.qps", "read_iops"]
        {
            assert_eq!(direction(name), Better::Higher, "{name}");
        }
        for name in ["p99_us", "us_per_op", "cost", "wall_s", "peak_bytes", "s_per_transaction"] {
            assert_eq!(direction(name), Better::Lower, "{name}");
        }
    }

    #[test]
    fn a_pattern_matches_once() {
        let ops = Source::pattern(r"ops=ops: ([\d.e+-]+)").unwrap();
        assert_eq!(read(&ops, "x\nops: 12.5\n"), Ok(12.5));
        assert_eq!(ops.read(&printed("", "ops: 1e3")), Ok(1000.0));
        let twice = ops.read(&printed("ops: 1\n", "ops: 2\n")).unwrap_err();
        assert!(twice.contains("'ops: 1' and 'ops: 2' match"), "{twice}");
        assert!(read(&ops, "op: 3").unwrap_err().contains("printed no ops"));
        assert!(read(&ops, "ops: 1.2.3").unwrap_err().contains("'1.2.3', which is no number"));
        let whole = Source::pattern(r"n=\d+").unwrap();
        assert_eq!(read(&whole, "it took 7"), Ok(7.0));
    }

    #[test]
    fn bad_patterns_are_refused_in_a_line() {
        for (text, what) in
            [("ops", "has no pattern"), ("=x", "has no pattern"), ("ops=(", "unclosed group")]
        {
            let error = Source::pattern(text).unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn json_is_found_by_its_path() {
        let output = r#"{"runs": [{"p99": 3}, {"p99": 4.5}], "name": "x"}"#;
        let json = |path: &str| read(&Source::json(path), output);
        assert_eq!(json("runs.1.p99"), Ok(4.5));
        assert_eq!(Source::json("runs.1.p99").name(), "p99");
        assert_eq!(Source::json("tail=runs.1.p99").name(), "tail");
        assert_eq!(json("runs.2.p99"), Err("its JSON has no runs.2.p99".to_owned()));
        assert_eq!(json("name"), Err("its name is \"x\", which is no number".to_owned()));
        let last = format!("starting\n{}\n\n", output);
        assert_eq!(read(&Source::json("runs.0.p99"), &last), Ok(3.0));
        assert!(read(&Source::json("p99"), "plain").unwrap_err().contains("printed no JSON"));
    }

    #[test]
    fn figures_without_sense_are_refused() {
        let refused = |value: &str| {
            let metrics =
                Metrics::new(vec![Source::pattern(r"x=x=(\S+)").unwrap()], None, Vec::new());
            metrics.read(&printed(&format!("x={value}"), ""), 0).unwrap_err()
        };
        for value in ["-1", "inf", "NaN"] {
            assert!(refused(value).contains("must be finite and not negative"), "{value}");
        }
    }

    #[test]
    fn benchmarks_must_stay_the_same() {
        let mut metrics = Metrics::new(Vec::new(), Some(Format::Go), Vec::new());
        let output = |names: &[&str]| -> Finished {
            let lines = names.iter().map(|name| format!("Benchmark{name} 10 5 ns/op\n"));
            printed(&lines.collect::<String>(), "")
        };
        metrics.printed = Format::Go.read(&output(&["A", "B"]).stdout);
        assert!(metrics.read(&output(&["A", "B"]), 0).is_ok());
        let lost = metrics.read(&output(&["A"]), 0).unwrap_err();
        assert_eq!(lost, "it printed no 'B ns/op', as the first run did");
        let new = metrics.read(&output(&["A", "B", "C"]), 0).unwrap_err();
        assert_eq!(new, "it printed 'C ns/op', which the first run did not");
        assert_eq!(metrics.primary(), ["A ns/op", "B ns/op"]);
    }

    #[test]
    fn peak_below_the_labs_own_is_left_out() {
        let metrics = Metrics::new(Vec::new(), None, Vec::new());
        let mut finished = printed("", "");
        finished.usage.max_rss_bytes = 5 << 20;
        let has_peak = |own| {
            metrics.read(&finished, own).unwrap().iter().any(|(name, _)| name == "peak_bytes")
        };
        assert!(has_peak(4 << 20) && !has_peak(5 << 20));
    }
}
