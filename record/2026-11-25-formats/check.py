"""Reads traces by the messages that Perfetto publishes (PyPI: perfetto), and checks what must hold."""
import collections
import sys

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

for file in sys.argv[1:]:
    data = open(file, "rb").read()
    trace = Trace.FromString(data)
    trace.DiscardUnknownFields()
    assert trace.ByteSize() == len(data), "all fields are known"
    last, tracks, arrows, arrived = 0, set(), {}, 0
    depth, categories = collections.Counter(), collections.Counter()
    for packet in trace.packet:
        assert packet.timestamp >= last
        last = packet.timestamp
        if packet.HasField("track_descriptor"):
            tracks.add(packet.track_descriptor.uuid)
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert event.track_uuid in tracks
        depth[event.track_uuid] += {
            TrackEvent.TYPE_SLICE_BEGIN: 1,
            TrackEvent.TYPE_SLICE_END: -1,
        }.get(event.type, 0)
        assert 0 <= depth[event.track_uuid] <= 1
        categories.update(event.categories)
        for flow in event.flow_ids:
            assert flow not in arrows
            arrows[flow] = packet.timestamp
        for flow in event.terminating_flow_ids:
            assert arrows.pop(flow) == packet.timestamp
            arrived += 1
    assert not any(depth.values()) and not arrows
    print(file, len(trace.packet), "packets", len(tracks), "tracks", arrived, "arrows", categories)
