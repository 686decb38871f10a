//! The waits as a trace for [Perfetto]: slices and wakeups on a track for each thread.
//!
//! The messages are those of [trace_packet.proto] and what it imports, without the fields that are
//! not written.
//!
//! [Perfetto]: https://ui.perfetto.dev
//! [trace_packet.proto]:
//! https://github.com/google/perfetto/blob/main/protos/perfetto/trace/trace_packet.proto

use std::io::{self, Write};

use prost::Message;

use super::Report;
use super::timeline::{TimelineThread, TimelineWait};

/// The track events come from one writer.
const SEQUENCE: u32 = 1;
/// `SEQ_INCREMENTAL_STATE_CLEARED`.
const CLEARED: u32 = 1;
/// `TrackEvent.Type`.
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;

impl Report {
    /// Writes the waits that were kept one by one as a trace for Perfetto. Each is a slice on its
    /// thread's track: what was waited for and where, the class as its category, and what is known
    /// of the place and the waker as arguments. From the waker's thread an arrow leads to the slice
    /// `woken`, which lasts until the thread runs again. Without
    /// [`TraceOptions::episodes`](crate::TraceOptions::episodes) there is none. Times are
    /// nanoseconds of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn write_perfetto(&self, to: &mut impl Write) -> io::Result<()> {
        let of = &self.timeline;
        let processes = of.threads.chunk_by(|a, b| a.pid == b.pid).map(|of| TrackDescriptor {
            uuid: Some(u64::from(of[0].pid)),
            process: Some(ProcessDescriptor {
                pid: Some(of[0].pid as i32),
                process_name: Some(of[0].comm.clone()),
            }),
            ..TrackDescriptor::default()
        });
        let threads = of.threads.iter().map(|of| TrackDescriptor {
            uuid: Some(track(of)),
            parent_uuid: Some(u64::from(of.pid)),
            thread: Some(ThreadDescriptor {
                pid: Some(of.pid as i32),
                tid: Some(i64::from(of.tid)),
                thread_name: Some(of.name.clone()),
            }),
            ..TrackDescriptor::default()
        });
        let packet = |at_ns| TracePacket {
            timestamp: Some(at_ns),
            trusted_packet_sequence_id: Some(SEQUENCE),
            ..TracePacket::default()
        };
        write_packet(to, TracePacket { sequence_flags: Some(CLEARED), ..packet(of.began_ns) })?;
        for descriptor in processes.chain(threads) {
            let track_descriptor = Some(descriptor);
            write_packet(to, TracePacket { track_descriptor, ..packet(of.began_ns) })?;
        }
        for (at_ns, wait, part) in self.perfetto_parts() {
            let track_event = Some(self.perfetto_event(wait, part));
            write_packet(to, TracePacket { track_event, ..packet(at_ns) })?;
        }
        Ok(())
    }

    /// The events by time: when, of which wait, and which.
    fn perfetto_parts(&self) -> Vec<(u64, usize, Part)> {
        let mut parts = Vec::new();
        for (index, wait) in self.timeline.waits.iter().enumerate() {
            parts.push((wait.began_ns, index, Part::Slept));
            parts.push((wait.woken_ns, index, Part::SleepEnded));
            if wait.woken_by.is_some() {
                let waker = wait.waker.map(|_| (wait.woken_ns, index, Part::Woke));
                parts.extend(waker);
                parts.push((wait.woken_ns, index, Part::Woken));
                parts.push((wait.ran_ns, index, Part::Ran));
            }
        }
        // At one time, in the order in which they were made: an end before what begins there.
        parts.sort_by_key(|(at_ns, ..)| *at_ns);
        parts
    }

    fn perfetto_event(&self, index: usize, part: Part) -> TrackEvent {
        let wait = &self.timeline.waits[index];
        let threads = &self.timeline.threads;
        let of_thread = |thread: usize, kind| TrackEvent {
            kind: Some(kind),
            track_uuid: Some(track(&threads[thread])),
            ..TrackEvent::default()
        };
        let begin = |name, category: &str| TrackEvent {
            name: Some(name),
            categories: vec![category.to_owned()],
            ..of_thread(wait.thread, SLICE_BEGIN)
        };
        let flow = index as u64 + 1;
        match (part, wait.waker) {
            (Part::Slept, _) => TrackEvent {
                debug_annotations: self.perfetto_annotations(wait),
                ..begin(wait.name(&self.waits.lines), wait.class.text())
            },
            (Part::Woke, Some(waker)) => TrackEvent {
                name: Some(format!("wakes {}", threads[wait.thread].name)),
                flow_ids: vec![flow],
                ..of_thread(waker, INSTANT)
            },
            (Part::Woken, waker) => TrackEvent {
                terminating_flow_ids: waker.map(|_| flow).into_iter().collect(),
                ..begin("woken".to_owned(), "runnable")
            },
            (Part::SleepEnded | Part::Ran | Part::Woke, _) => of_thread(wait.thread, SLICE_END),
        }
    }

    fn perfetto_annotations(&self, wait: &TimelineWait) -> Vec<DebugAnnotation> {
        let line = wait.line.map(|index| &self.waits.lines[index]);
        let mut debug_annotations = vec![DebugAnnotation::new("call", &wait.call)];
        if let Some(line) = line {
            debug_annotations.push(DebugAnnotation::new("object", &line.object));
            debug_annotations.push(DebugAnnotation::new("site", &line.site.to_string()));
            let site_percent = line.site_percent;
            debug_annotations.extend(site_percent.map(|percent| DebugAnnotation {
                name: Some("site_percent".to_owned()),
                double_value: Some(percent),
                ..DebugAnnotation::default()
            }));
        }
        let woken_by = wait.woken_by.as_deref();
        debug_annotations.extend(woken_by.map(|by| DebugAnnotation::new("woken_by", by)));
        debug_annotations
    }
}

/// The events of a wait, in the order in which they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The slice of the wait begins.
    Slept,
    SleepEnded,
    /// On the waker's track.
    Woke,
    /// The slice begins that lasts until the thread runs.
    Woken,
    Ran,
}

/// A trace is its packets, one behind another.
fn write_packet(to: &mut impl Write, packet: TracePacket) -> io::Result<()> {
    to.write_all(&Trace { packet: vec![packet] }.encode_to_vec())
}

/// The number of a thread's track; a process's is its own number.
fn track(of: &TimelineThread) -> u64 {
    u64::from(of.pid) << 32 | u64::from(of.tid)
}

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(double, optional, tag = "5")]
    double_value: Option<f64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

impl DebugAnnotation {
    fn new(name: &str, value: &str) -> Self {
        let [name, string_value] = [name, value].map(|text| Some(text.to_owned()));
        Self { name, string_value, double_value: None }
    }
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    thread_name: Option<String>,
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::report::fixture::{observation, symbols};

    fn perfetto() -> Vec<u8> {
        let mut bytes = Vec::new();
        let report = Report::new(&observation(), &mut symbols());
        report.write_perfetto(&mut bytes).expect("memory takes it");
        bytes
    }

    fn text(of: &TrackEvent, name: &str) -> Option<String> {
        let annotation = of.debug_annotations.iter().find(|of| of.name.as_deref() == Some(name))?;
        annotation.string_value.clone()
    }

    #[test]
    fn slices_end_and_arrows_arrive() {
        let trace: Trace = prost::Message::decode(&perfetto()[..]).expect("it is a trace");
        let times: Vec<_> = trace.packet.iter().map(|of| of.timestamp).collect();
        assert!(times.is_sorted() && times.iter().all(Option::is_some), "{times:?}");
        assert!(trace.packet.iter().all(|of| of.trusted_packet_sequence_id == Some(SEQUENCE)));
        let tracks: BTreeSet<_> =
            trace.packet.iter().filter_map(|of| of.track_descriptor.as_ref()?.uuid).collect();
        assert_eq!(
            tracks.len(),
            2 + 2 + 4,
            "processes, with their first threads, and threads that waited or woke"
        );
        let mut open = BTreeMap::<_, u32>::new();
        let mut arrows = BTreeSet::<u64>::new();
        let mut arrived = 0;
        for event in trace.packet.iter().filter_map(|of| of.track_event.as_ref()) {
            let track = event.track_uuid.filter(|of| tracks.contains(of)).expect("a known track");
            let depth = open.entry(track).or_default();
            match event.kind {
                Some(SLICE_BEGIN) => *depth += 1,
                Some(SLICE_END) => *depth -= 1,
                kind => assert_eq!(kind, Some(INSTANT)),
            }
            assert!(*depth <= 1, "waits of one thread do not overlap: {event:?}");
            arrows.extend(&event.flow_ids);
            for flow in &event.terminating_flow_ids {
                assert!(arrows.remove(flow), "it begins at the waker: {event:?}");
                arrived += 1;
            }
        }
        assert!(open.values().all(|depth| *depth == 0), "{open:?}");
        assert_eq!((arrows.len(), arrived), (0, 1), "{arrows:?}");
    }

    #[test]
    fn waits_bear_site_class_and_waker() {
        let trace: Trace = prost::Message::decode(&perfetto()[..]).expect("it is a trace");
        let events: Vec<_> = trace.packet.into_iter().filter_map(|of| of.track_event).collect();
        let of = |class: &str| {
            let found = events.iter().find(|of| of.categories == [class]);
            found.unwrap_or_else(|| panic!("no {class}"))
        };
        let broadcast = of("possibly needless");
        let name = broadcast.name.as_deref().unwrap();
        assert!(name.starts_with("futex 0x7f0000001000 at pool::queue::pop"), "{name}");
        assert_eq!(text(broadcast, "woken_by").unwrap(), "futex at pool::queue::push [jit]");
        assert_eq!(text(of("timer poll"), "woken_by").unwrap(), "timer");
        assert_eq!(text(of("needless"), "woken_by").unwrap(), "interrupt");
        assert_eq!(text(of("not judged"), "woken_by"), None, "it goes on");
        assert_eq!(text(of("uninterruptible"), "call").unwrap(), "no call");
    }

    /// Every field has its own number and type: as Perfetto's own Python package (0.59.1) writes
    /// these packets.
    #[test]
    fn fields_are_encoded_as_perfetto_does() {
        const BY_PERFETTO: &str = "\
            0a06400150016801\
            0a0ce2030908021a050803320170\
            0a10e2030d08042207080310052a01742802\
            0a385a362206320176520173220c29000000000000e03f52016648015804b2010163ba01016ef902\
            060000000000000081030700000000000000\
            0a045a024802\
            0a045a024803";
        let text = |text: &str| Some(text.to_owned());
        let about = |track_descriptor| TracePacket {
            track_descriptor: Some(track_descriptor),
            ..TracePacket::default()
        };
        let event = |kind| TrackEvent { kind: Some(kind), ..TrackEvent::default() };
        let happens = |event| TracePacket { track_event: Some(event), ..TracePacket::default() };
        let packets = [
            TracePacket {
                timestamp: Some(1),
                trusted_packet_sequence_id: Some(SEQUENCE),
                sequence_flags: Some(CLEARED),
                ..TracePacket::default()
            },
            about(TrackDescriptor {
                uuid: Some(2),
                process: Some(ProcessDescriptor { pid: Some(3), process_name: text("p") }),
                ..TrackDescriptor::default()
            }),
            about(TrackDescriptor {
                uuid: Some(4),
                parent_uuid: Some(2),
                thread: Some(ThreadDescriptor {
                    pid: Some(3),
                    tid: Some(5),
                    thread_name: text("t"),
                }),
                ..TrackDescriptor::default()
            }),
            happens(TrackEvent {
                debug_annotations: vec![
                    DebugAnnotation::new("s", "v"),
                    DebugAnnotation {
                        name: text("f"),
                        double_value: Some(0.5),
                        ..DebugAnnotation::default()
                    },
                ],
                track_uuid: Some(4),
                categories: vec!["c".to_owned()],
                name: text("n"),
                flow_ids: vec![6],
                terminating_flow_ids: vec![7],
                ..event(SLICE_BEGIN)
            }),
            happens(event(SLICE_END)),
            happens(event(INSTANT)),
        ];
        let mut bytes = Vec::new();
        packets.into_iter().for_each(|of| write_packet(&mut bytes, of).expect("memory takes it"));
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, BY_PERFETTO);
    }

    #[test]
    fn trace_without_waits_has_its_processes() {
        let mut seen = observation();
        seen.episodes.clear();
        let mut bytes = Vec::new();
        let report = Report::new(&seen, &mut symbols());
        report.write_perfetto(&mut bytes).expect("memory takes it");
        let trace: Trace = prost::Message::decode(&bytes[..]).expect("it is a trace");
        let named = trace.packet.iter().filter_map(|of| of.track_descriptor.as_ref());
        assert_eq!(named.filter(|of| of.process.is_some()).count(), seen.processes.len());
    }

    /// By the messages that Perfetto publishes, where its Python package is installed.
    #[test]
    fn perfetto_knows_all_fields() {
        const READ: &str = "import sys\n\
            from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace\n\
            trace = Trace.FromString(sys.stdin.buffer.read())\n\
            size = trace.ByteSize()\n\
            trace.DiscardUnknownFields()\n\
            events = [p.track_event for p in trace.packet if p.HasField('track_event')]\n\
            print(size == trace.ByteSize(), len(events), sum(e.type == 1 for e in events))";
        let mut python = Command::new("python3");
        let python = python.args(["-c", READ]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = python.stderr(Stdio::null()).spawn() else {
            return eprintln!("skipped: there is no python3");
        };
        // A reader that has no such package is gone by then.
        let _ = child.stdin.take().map(|mut to| to.write_all(&perfetto()));
        let read = child.wait_with_output().expect("python ends");
        if !read.status.success() {
            return eprintln!("skipped: python3 has no package perfetto");
        }
        assert_eq!(String::from_utf8_lossy(&read.stdout), "True 23 11\n");
    }

    /// By Perfetto's own reader, where it is installed: it keeps every slice and arrow, and counts
    /// no error of its own.
    #[test]
    fn trace_processor_reads_all() {
        const COUNTS: &str = "select (select count(*) from slice), (select count(*) from flow), \
            (select count(*) from slice where dur < 0), (select count(*) from thread_track), \
            (select count(*) from stats where severity in ('error', 'data_loss') and value > 0)";
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("waits.pftrace");
        std::fs::write(&path, perfetto()).expect("a file");
        let mut reader = Command::new("trace_processor_shell");
        let Ok(read) = reader.args(["-Q", COUNTS]).arg(&path).output() else {
            return eprintln!("skipped: there is no trace_processor_shell");
        };
        assert!(read.status.success(), "{read:?}");
        let told = String::from_utf8_lossy(&read.stdout);
        assert_eq!(told.lines().last(), Some("12,1,0,4,0"), "{told}");
    }
}
