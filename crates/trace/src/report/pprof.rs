//! The waits as a profile for pprof(1) and whatever else reads its format.
//!
//! The messages are those of [profile.proto], without the fields that are not written.
//!
//! [profile.proto]: https://github.com/google/pprof/blob/main/proto/profile.proto

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::Report;
use super::callers::is_scheduler;
use super::folded::{NO_STACK, shares};
use super::numbers::Numbers;
use super::waits::WaitLine;
use crate::symbols::Frame;

/// What each sample has of its line's counts: name, unit, and the count.
type Value = (&'static str, &'static str, fn(&WaitLine) -> u64);

/// All values; without a judgement there is the first alone.
const VALUES: [Value; 5] = [
    ("off_cpu", "nanoseconds", |of| of.asleep_ns.saturating_add(of.uninterruptible_ns)),
    ("needless_wakeups_proven", "count", |of| of.needless.proven),
    ("needless_wakeups_possible", "count", |of| of.needless.possible),
    ("needless_cpu_proven", "nanoseconds", |of| of.needless_cpu_ns.proven),
    ("needless_cpu_possible", "nanoseconds", |of| of.needless_cpu_ns.possible),
];

impl Report {
    /// Writes the waits as a profile of pprof, in gzip: by stack the time asleep, the needless
    /// wakeups and their CPU time, both as proven and as possible. The last is what readers show
    /// first; where wakeups were not judged the time asleep is all there is. Each sample bears the
    /// labels `reason` (the call), `object`, `program` and `pid`. What was counted at a wait site
    /// is shared out over the stacks that were taken there, without the scheduler's own frames.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write_pprof(&self, to: &mut impl Write) -> io::Result<()> {
        let values = if self.judged { &VALUES[..] } else { &VALUES[..1] };
        let mut tables = Tables::default();
        let sample_type = values.iter().map(|(name, unit, _)| ValueType {
            kind: tables.string(name),
            unit: tables.string(unit),
        });
        let sample_type: Vec<_> = sample_type.collect();
        let mut sample = Vec::new();
        for line in &self.waits.lines {
            let label = vec![
                Label::of_text("reason", &line.call, &mut tables),
                Label::of_text("object", &line.object, &mut tables),
                Label::of_text("program", &line.comm, &mut tables),
                Label { key: tables.string("pid"), num: i64::from(line.pid), ..Label::default() },
            ];
            for (pair, of) in shares(line, VALUES.map(|(.., count)| count(line))) {
                let stacks = pair.map(|pair| [pair.kernel, pair.user]).into_iter().flatten();
                let stacks = stacks.flatten().filter_map(|index| self.stacks.get(index));
                // All sleep in the scheduler.
                let frames = stacks.flat_map(|stack| &stack.frames);
                let frames = frames.skip_while(|frame| is_scheduler(&frame.name));
                let mut location_id: Vec<u64> = frames.map(|of| tables.location(of)).collect();
                if location_id.is_empty() {
                    location_id.push(tables.function(NO_STACK, "", 0));
                }
                let value = of.iter().take(values.len());
                let value = value.map(|of| i64::try_from(*of).unwrap_or(i64::MAX)).collect();
                sample.push(Sample { location_id, value, label: label.clone() });
            }
        }
        let default_sample_type = sample_type.last().map_or(0, |last| last.kind);
        let profile = Profile {
            sample_type,
            sample,
            default_sample_type,
            duration_nanos: i64::try_from(self.summary.duration_ns).unwrap_or(i64::MAX),
            ..tables.into_profile()
        };
        let mut zipped = GzEncoder::new(to, Compression::default());
        zipped.write_all(&profile.encode_to_vec())?;
        zipped.finish().map(drop)
    }
}

/// Strings and functions, each once, numbered as they come. Location and function are one.
#[derive(Default)]
struct Tables {
    strings: Numbers<String>,
    functions: Numbers<(i64, i64, i64)>,
}

impl Tables {
    /// The first string is the empty one.
    fn string(&mut self, text: &str) -> i64 {
        self.strings.of(String::new());
        self.strings.of(text.to_owned()) as i64 - 1
    }

    /// A function that was met at this line.
    fn function(&mut self, name: &str, file: &str, line: i64) -> u64 {
        let (name, file) = (self.string(name), self.string(file));
        self.functions.of((name, file, line))
    }

    fn location(&mut self, frame: &Frame) -> u64 {
        let file = frame.file.as_deref().or(frame.module.as_deref()).unwrap_or_default();
        self.function(&frame.name, file, frame.line.map_or(0, i64::from))
    }

    fn into_profile(mut self) -> Profile {
        self.string("");
        let functions = self.functions.in_order().into_iter().zip(1..);
        let (location, function) = functions
            .map(|((name, filename, line), id)| {
                let line = vec![Line { function_id: id, line }];
                (Location { id, line }, Function { id, name, filename })
            })
            .unzip();
        let string_table = self.strings.in_order();
        Profile { location, function, string_table, ..Profile::default() }
    }
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
    #[prost(int64, tag = "3")]
    num: i64,
}

impl Label {
    fn of_text(key: &str, text: &str, tables: &mut Tables) -> Self {
        Self { key: tables.string(key), text: tables.string(text), num: 0 }
    }
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;
    use std::io::Read;
    use std::process::Command;

    use super::*;
    use crate::report::fixture::{observation, symbols};

    fn pprof(report: &Report) -> Vec<u8> {
        let mut bytes = Vec::new();
        report.write_pprof(&mut bytes).expect("memory takes it");
        bytes
    }

    /// The sums of each value of a profile, by its name, as it is decoded again.
    pub(in crate::report) fn pprof_sums(report: &Report) -> Vec<(String, i64)> {
        let mut bytes = Vec::new();
        let zipped = pprof(report);
        flate2::read::GzDecoder::new(&zipped[..]).read_to_end(&mut bytes).expect("it is gzip");
        let profile: Profile = prost::Message::decode(&bytes[..]).expect("it is a profile");
        let text = |index: i64| profile.string_table[usize::try_from(index).unwrap()].clone();
        assert_eq!(text(0), "");
        let ids: BTreeSet<u64> = profile.location.iter().map(|of| of.id).collect();
        for sample in &profile.sample {
            assert!(sample.location_id.iter().all(|id| ids.contains(id)), "{sample:?}");
            assert_eq!(text(sample.label[0].key), "reason");
        }
        let values = |index: usize| profile.sample.iter().map(move |of| of.value[index]);
        let sum = |index: usize| values(index).fold(0, i64::saturating_add);
        let types = profile.sample_type.iter().enumerate();
        types.map(|(index, of)| (text(of.kind), sum(index))).collect()
    }

    #[test]
    fn profile_sums_to_summary() {
        let report = Report::new(&observation(), &mut symbols());
        let needless = report.summary.needless_wakeups.unwrap();
        let cpu_ns = report.summary.needless_wakeups_cpu_ns.unwrap();
        let expected = [
            ("off_cpu", 173_130_000_000),
            ("needless_wakeups_proven", needless.proven),
            ("needless_wakeups_possible", needless.possible),
            ("needless_cpu_proven", cpu_ns.proven),
            ("needless_cpu_possible", cpu_ns.possible),
        ];
        let expected = expected.map(|(name, sum)| (name.to_owned(), i64::try_from(sum).unwrap()));
        assert_eq!(pprof_sums(&report), expected);
        let unseen = Report::of_switches_only(&observation(), &mut symbols());
        assert_eq!(pprof_sums(&unseen), expected[..1], "what was not judged is not 0");
    }

    #[test]
    fn pprof_reads_profile() {
        let Ok(version) = Command::new("go").arg("version").output() else {
            return eprintln!("skipped: there is no go");
        };
        assert!(version.status.success(), "{version:?}");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("waits.pb.gz");
        std::fs::write(&path, pprof(&Report::new(&observation(), &mut symbols()))).expect("a file");
        let mut reader = Command::new("go");
        reader
            .args(["tool", "pprof", "-top", "-sample_index=needless_wakeups_possible"])
            .arg(&path);
        let read = reader.output().expect("go runs");
        let told = String::from_utf8_lossy(&read.stdout);
        assert!(read.status.success(), "{read:?}");
        assert!(told.contains("10888 total") && told.contains("worker_loop"), "{told}");
    }
}
