//! The waits as a profile for the [Firefox Profiler], in its processed format.
//!
//! The version is one that later readers upgrade; its [types] and the [changes since] are public.
//!
//! [Firefox Profiler]: https://profiler.firefox.com
//! [types]: https://github.com/firefox-devtools/profiler/blob/main/src/types/profile.ts
//! [changes since]:
//! https://github.com/firefox-devtools/profiler/blob/main/docs-developer/CHANGELOG-formats.md

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde_json::{Value, json};
use unherd_sys::Timestamp;

use super::Report;
use super::folded::shares;
use super::numbers::Numbers;
use super::timeline::TimelineThread;
use crate::observation::EpisodeClass;
use crate::symbols::{Frame, Side};

/// Of the processed format.
const VERSION: u32 = 60;
/// Of the format that Firefox itself writes, which readers also look at.
const GECKO_VERSION: u32 = 31;

/// Name and colour. The first is the one that is grey; then those of frames, then of waits.
const CATEGORIES: [(&str, &str); 9] = [
    ("Other", "grey"),
    ("Kernel", "orange"),
    ("Program", "blue"),
    ("Not judged", "grey"),
    ("Not needless", "green"),
    ("Possibly needless", "lightred"),
    ("Needless", "red"),
    ("Timer poll", "magenta"),
    ("Uninterruptible", "brown"),
];

fn category(class: EpisodeClass) -> usize {
    3 + class as usize
}

impl Report {
    /// Writes the waits for the Firefox Profiler, as JSON: those that were kept one by one
    /// ([`TraceOptions::episodes`](crate::TraceOptions::episodes)) as markers of their threads,
    /// with the wakes that ended them as flows; and the time asleep by stack, which has no times,
    /// as a thread of its own in each process.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write_firefox(&self, to: &mut impl Write) -> io::Result<()> {
        // Thread by thread: what is written takes more memory than the waits.
        let mut shared = Shared::default();
        let meta = self.firefox_meta();
        write!(to, r#"{{"meta":{meta},"libs":[],"pages":[],"threads":["#)?;
        let mut comma = "";
        let mut write_thread = |thread: &Thread<'_>| {
            write!(to, "{comma}")?;
            comma = ",";
            serde_json::to_writer(&mut *to, thread).map_err(io::Error::from)
        };
        self.firefox_threads(&mut shared, &mut write_thread)?;
        self.firefox_stacks(&mut shared).iter().try_for_each(write_thread)?;
        writeln!(to, r#"],"shared":{}}}"#, shared.into_tables())
    }

    fn firefox_meta(&self) -> Value {
        let began_ns = self.timeline.began_ns;
        let now = clock_gettime(ClockId::Realtime);
        let since = Timestamp::now().as_ns().saturating_sub(began_ns);
        let ms = now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6 - since as f64 / 1e6;
        let categories = CATEGORIES
            .map(|(name, color)| json!({"name": name, "color": color, "subcategories": ["Other"]}));
        let field = |key, label, format| json!({"key": key, "label": label, "format": format});
        json!({
            "interval": 1,
            "startTime": ms,
            "startTimeAsClockMonotonicNanosecondsSinceBoot": began_ns,
            "profilingStartTime": 0,
            "profilingEndTime": self.duration_ms(),
            "processType": 0,
            "product": "unherd trace",
            "importedFrom": "unherd trace",
            "stackwalk": 1,
            "version": GECKO_VERSION,
            "preprocessedProfileVersion": VERSION,
            "symbolicated": true,
            "symbolicationNotSupported": true,
            "usesOnlyOneStackType": true,
            "sourceCodeIsNotOnSearchfox": true,
            "keepProfileThreadOrder": true,
            "categories": categories,
            "markerSchema": [
                {
                    "name": "wait",
                    "tooltipLabel": "{marker.name}",
                    "tableLabel": "{marker.data.class}: {marker.name}",
                    "chartLabel": "{marker.name}",
                    "display": ["marker-chart", "marker-table", "timeline-overview"],
                    "isStackBased": true,
                    "fields": [
                        field("class", "Judgement", "string"),
                        field("call", "Call", "string"),
                        field("wokenBy", "Woken by", "string"),
                        field("untilRunNs", "From the wake until it ran", "nanoseconds"),
                        field("flow", "Wake", "terminating-flow-id"),
                    ],
                },
                {
                    "name": "wake",
                    "tableLabel": "wakes {marker.data.woken}",
                    "display": ["marker-chart", "marker-table"],
                    "fields": [
                        field("woken", "Wakes", "string"),
                        field("flow", "Wake", "flow-id"),
                    ],
                },
            ],
        })
    }

    fn duration_ms(&self) -> f64 {
        self.summary.duration_ns as f64 / 1e6
    }

    fn firefox_threads(
        &self,
        shared: &mut Shared,
        write: &mut impl FnMut(&Thread<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let of = &self.timeline;
        // By thread: the waits, and those that it woke.
        let waits = of.waits.iter().enumerate();
        let ends = waits.flat_map(|(index, wait)| {
            let waker = wait.waker.map(|waker| (waker, index, true));
            waker.into_iter().chain([(wait.thread, index, false)])
        });
        let mut ends: Vec<_> = ends.collect();
        ends.sort_by_key(|(thread, ..)| *thread);
        let mut ends = &ends[..];
        // A thread without samples is not shown; these have no stack.
        let samples = Samples {
            stack: vec![None, None],
            time: vec![0.0, self.duration_ms()],
            weight: None,
            weight_type: "samples",
        };
        for (index, of) in of.threads.iter().enumerate() {
            let (own, others) =
                ends.split_at(ends.partition_point(|(thread, ..)| *thread == index));
            ends = others;
            let mut markers = Markers::default();
            for (_, wait, is_wake) in own {
                self.push_marker(*wait, *is_wake, shared, &mut markers);
            }
            let about = (of.pid, &*of.comm, &*of.name);
            write(&thread(about, json!(of.tid), of.pid == of.tid, &samples, markers))?;
        }
        Ok(())
    }

    /// The marker of a wait on its own thread's track, or of its wake on the waker's.
    fn push_marker<'a>(
        &'a self,
        index: usize,
        is_wake: bool,
        shared: &mut Shared,
        to: &mut Markers<'a>,
    ) {
        let of = &self.timeline;
        let ms = |at_ns: u64| at_ns.saturating_sub(of.began_ns) as f64 / 1e6;
        let wait = &of.waits[index];
        let flow = wait.waker.map(|_| shared.string(&format!("{:#x}", index + 1)));
        if is_wake {
            let TimelineThread { name, tid, .. } = &of.threads[wait.thread];
            let data = Marker::Wake { woken: format!("{name} ({tid})"), flow };
            return to.push(shared.string("wakes"), (ms(wait.woken_ns), None), 0, data);
        }
        let data = Marker::Wait {
            class: wait.class.text(),
            call: &wait.call,
            woken_by: wait.woken_by.as_deref(),
            until_run_ns: wait.ran_ns - wait.woken_ns,
            flow,
        };
        let name = shared.string(&wait.name(&self.waits.lines));
        let times = (ms(wait.began_ns), Some(ms(wait.ran_ns)));
        to.push(name, times, category(wait.class), data);
    }

    /// A sample for each stack, which stands for the time asleep there.
    fn firefox_stacks(&self, shared: &mut Shared) -> Vec<Thread<'static>> {
        let mut processes: BTreeMap<(u32, &str), Asleep> = BTreeMap::new();
        for line in &self.waits.lines {
            let asleep_ns = line.asleep_ns.saturating_add(line.uninterruptible_ns);
            for (pair, [ns]) in shares(line, [asleep_ns]) {
                let stacks = pair.map(|pair| [pair.kernel, pair.user]).into_iter().flatten();
                let stacks = stacks.flatten().filter_map(|index| self.stacks.get(index));
                let frames: Vec<_> = stacks.flat_map(|stack| &stack.frames).collect();
                let stack = frames.iter().rev().fold(None, |of, frame| shared.stack(of, frame));
                let asleep = processes.entry((line.pid, &line.comm)).or_default();
                asleep.stacks.push(stack);
                asleep.ms.push(ns as f64 / 1e6);
            }
        }
        let of_process = |((pid, comm), asleep): ((u32, &str), Asleep)| {
            let count = asleep.stacks.len();
            let apart = self.duration_ms() / count as f64;
            let samples = Samples {
                stack: asleep.stacks,
                time: (0..count).map(|index| index as f64 * apart).collect(),
                weight: Some(asleep.ms),
                weight_type: "tracing-ms",
            };
            let name = "time asleep, by stack (in no order)";
            let about = (pid, comm, name);
            thread(about, json!(format!("{pid}-asleep")), false, &samples, Markers::default())
        };
        processes.into_iter().map(of_process).collect()
    }
}

/// An entry of `threads`.
#[derive(Serialize)]
struct Thread<'a> {
    #[serde(flatten)]
    about: Value,
    markers: Markers<'a>,
}

fn thread<'a>(
    (pid, comm, name): (u32, &str, &str),
    tid: Value,
    is_main: bool,
    samples: &Samples,
    markers: Markers<'a>,
) -> Thread<'a> {
    let about = json!({
        "processType": "default",
        "processName": comm,
        "processStartupTime": 0,
        "processShutdownTime": null,
        "registerTime": 0,
        "unregisterTime": null,
        "pausedRanges": [],
        "showMarkersInTimeline": true,
        "name": name,
        "isMainThread": is_main,
        "pid": pid.to_string(),
        "tid": tid,
        "samples": {
            "stack": samples.stack,
            "time": samples.time,
            "weight": samples.weight,
            "weightType": samples.weight_type,
            "length": samples.stack.len(),
        },
    });
    Thread { about, markers }
}

/// The stacks of a process, and the time that each stands for.
#[derive(Default)]
struct Asleep {
    stacks: Vec<Option<u64>>,
    ms: Vec<f64>,
}

/// A table of samples, by column.
struct Samples {
    stack: Vec<Option<u64>>,
    time: Vec<f64>,
    weight: Option<Vec<f64>>,
    weight_type: &'static str,
}

/// A table of markers, by column. Times are in milliseconds since tracing began.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Markers<'a> {
    name: Vec<u64>,
    start_time: Vec<f64>,
    end_time: Vec<Option<f64>>,
    /// 0: at a moment; 1: from its start to its end.
    phase: Vec<u8>,
    category: Vec<usize>,
    data: Vec<Marker<'a>>,
    length: usize,
}

/// The data of a marker, by the names in its schema.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Marker<'a> {
    Wait {
        class: &'static str,
        call: &'a str,
        woken_by: Option<&'a str>,
        until_run_ns: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        flow: Option<u64>,
    },
    Wake {
        woken: String,
        flow: Option<u64>,
    },
}

impl<'a> Markers<'a> {
    fn push(
        &mut self,
        name: u64,
        (start, end): (f64, Option<f64>),
        category: usize,
        data: Marker<'a>,
    ) {
        self.length += 1;
        self.name.push(name);
        self.start_time.push(start);
        self.end_time.push(end);
        self.phase.push(u8::from(end.is_some()));
        self.category.push(category);
        self.data.push(data);
    }
}

/// The tables that all threads share, each numbered from 0.
#[derive(Default)]
struct Shared {
    strings: Numbers<String>,
    /// Name, side, and the file's or module's name.
    functions: Numbers<(u64, Side, Option<u64>)>,
    /// Function and line.
    frames: Numbers<(u64, Option<u32>)>,
    /// The caller's stack, and the frame.
    stacks: Numbers<(Option<u64>, u64)>,
}

impl Shared {
    fn string(&mut self, text: &str) -> u64 {
        self.strings.of(text.to_owned()) - 1
    }

    fn stack(&mut self, caller: Option<u64>, frame: &Frame) -> Option<u64> {
        let name = self.string(&frame.name);
        let file = frame.file.as_deref().or(frame.module.as_deref());
        let file = file.map(|file| self.string(file));
        let function = self.functions.of((name, frame.side, file)) - 1;
        let frame = self.frames.of((function, frame.line)) - 1;
        Some(self.stacks.of((caller, frame)) - 1)
    }

    fn into_tables(self) -> Value {
        let functions = self.functions.in_order();
        let names: Vec<_> = functions.iter().map(|(name, ..)| name).collect();
        let files: Vec<_> = functions.iter().filter_map(|(.., file)| *file).collect();
        let mut numbers = 0..;
        let sources = functions.iter().map(|(.., file)| file.and_then(|_| numbers.next()));
        let sources: Vec<Option<u64>> = sources.collect();
        let frames = self.frames.in_order();
        let category = |function: u64| match functions[function as usize].1 {
            Side::Kernel => 1,
            Side::User => 2,
        };
        let categories: Vec<_> = frames.iter().map(|(function, _)| category(*function)).collect();
        let stacks = self.stacks.in_order();
        let of_frames = |value: Value| vec![value; frames.len()];
        let of_functions = |value: Value| vec![value; functions.len()];
        json!({
            "stringArray": self.strings.in_order(),
            "stackTable": {
                "frame": stacks.iter().map(|(_, frame)| frame).collect::<Vec<_>>(),
                "prefix": stacks.iter().map(|(caller, _)| caller).collect::<Vec<_>>(),
                "length": stacks.len(),
            },
            "frameTable": {
                "address": of_frames(json!(-1)),
                "inlineDepth": of_frames(json!(0)),
                "category": categories,
                "subcategory": of_frames(json!(0)),
                "func": frames.iter().map(|(function, _)| function).collect::<Vec<_>>(),
                "nativeSymbol": of_frames(Value::Null),
                "innerWindowID": of_frames(json!(0)),
                "line": frames.iter().map(|(_, line)| line).collect::<Vec<_>>(),
                "column": of_frames(Value::Null),
                "length": frames.len(),
            },
            "funcTable": {
                "name": names,
                "isJS": of_functions(json!(false)),
                "relevantForJS": of_functions(json!(false)),
                "resource": of_functions(json!(-1)),
                "source": sources,
                "lineNumber": of_functions(Value::Null),
                "columnNumber": of_functions(Value::Null),
                "length": functions.len(),
            },
            "resourceTable": {"type": [], "lib": [], "name": [], "host": [], "length": 0},
            "nativeSymbols": {
                "libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0,
            },
            "sources": {
                "id": vec![Value::Null; files.len()],
                "filename": files,
                "length": files.len(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::report::fixture::{observation, symbols};

    fn firefox() -> Value {
        let mut bytes = Vec::new();
        let report = Report::new(&observation(), &mut symbols());
        report.write_firefox(&mut bytes).expect("memory takes it");
        serde_json::from_slice(&bytes).expect("it is JSON")
    }

    /// All columns of a table are as long as it says.
    fn assert_whole(table: &Value, columns: &[&str]) -> usize {
        let length = table["length"].as_u64().unwrap() as usize;
        let named: BTreeSet<_> = table.as_object().unwrap().keys().map(String::as_str).collect();
        for column in columns {
            assert!(named.contains(column), "no {column} in {table}");
        }
        for values in table.as_object().unwrap().values().filter_map(Value::as_array) {
            assert_eq!(values.len(), length, "{table}");
        }
        length
    }

    /// All that this column names is in a table of this length.
    fn assert_within(column: &Value, length: usize) {
        let mut numbers = column.as_array().unwrap().iter().filter_map(Value::as_u64);
        assert!(numbers.all(|number| (number as usize) < length), "{column} < {length}");
    }

    #[test]
    fn tables_are_whole_and_name_each_other() {
        let profile = firefox();
        let shared = &profile["shared"];
        let strings = shared["stringArray"].as_array().unwrap().len();
        let functions = assert_whole(
            &shared["funcTable"],
            &["name", "isJS", "relevantForJS", "resource", "source", "lineNumber", "columnNumber"],
        );
        let frames = assert_whole(
            &shared["frameTable"],
            &["address", "inlineDepth", "category", "subcategory", "func", "nativeSymbol", "line"],
        );
        let stacks = assert_whole(&shared["stackTable"], &["frame", "prefix"]);
        let sources = assert_whole(&shared["sources"], &["id", "filename"]);
        assert_whole(&shared["resourceTable"], &["type", "lib", "name", "host"]);
        assert_whole(&shared["nativeSymbols"], &["libIndex", "address", "name", "functionSize"]);
        assert!(functions > 10 && frames >= functions && stacks >= frames, "{shared}");
        assert_within(&shared["funcTable"]["name"], strings);
        assert_within(&shared["funcTable"]["source"], sources);
        assert_within(&shared["sources"]["filename"], strings);
        assert_within(&shared["frameTable"]["func"], functions);
        assert_within(&shared["frameTable"]["category"], CATEGORIES.len());
        assert_within(&shared["stackTable"]["frame"], frames);
        let callers = shared["stackTable"]["prefix"].as_array().unwrap().iter().enumerate();
        for (stack, caller) in callers {
            assert!(caller.as_u64().is_none_or(|of| (of as usize) < stack), "callers come first");
        }
        for thread in profile["threads"].as_array().unwrap() {
            assert_whole(&thread["samples"], &["stack", "time", "weight"]);
            assert_within(&thread["samples"]["stack"], stacks);
            let markers = &thread["markers"];
            assert_whole(markers, &["name", "startTime", "endTime", "phase", "category", "data"]);
            assert_within(&markers["name"], strings);
            assert_within(&markers["category"], CATEGORIES.len());
        }
    }

    #[test]
    fn markers_have_schemas_and_flows_have_two_ends() {
        let profile = firefox();
        let strings = profile["shared"]["stringArray"].as_array().unwrap();
        let schemas = profile["meta"]["markerSchema"].as_array().unwrap();
        let markers: Vec<_> = profile["threads"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|thread| thread["markers"]["data"].as_array().unwrap())
            .collect();
        let mut flows = Vec::new();
        for marker in &markers {
            let schema = schemas.iter().find(|of| of["name"] == marker["type"]);
            let fields = schema.expect("each has a schema")["fields"].as_array().unwrap();
            for key in marker.as_object().unwrap().keys().filter(|key| *key != "type") {
                assert!(fields.iter().any(|field| field["key"] == **key), "{key} of {marker}");
            }
            flows.extend(marker["flow"].as_u64());
        }
        let wait = markers.iter().find(|of| of["class"] == "possibly needless").unwrap();
        assert_eq!(wait["wokenBy"], "futex at pool::queue::push [jit]");
        assert_eq!(wait["untilRunNs"], 20_000);
        assert_eq!((markers.len(), flows.len()), (7, 2), "six waits, and a wake");
        assert!(flows[0] == flows[1] && strings[flows[0] as usize].is_string());
    }

    #[test]
    fn samples_weigh_time_asleep() {
        let profile = firefox();
        let threads = profile["threads"].as_array().unwrap();
        let weights = threads.iter().filter_map(|of| of["samples"]["weight"].as_array());
        let sum: f64 = weights.flatten().filter_map(Value::as_f64).sum();
        assert!((sum - 173_130.0).abs() < 1e-3, "{sum} ms, as the report has it");
    }
}
