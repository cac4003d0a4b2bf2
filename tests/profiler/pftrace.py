"""Reads a trace in Perfetto's format with Google's protobuf, by field numbers of Perfetto's own
trace_packet.proto, and replays it as Perfetto's trace processor does. usage: pftrace.py MAKER
[KNET]: then also a trace in JSON that `knet report` turns into one."""
import collections
import json
import os
import subprocess
import sys
import tempfile

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError:
    print("python3-protobuf is not installed")
    sys.exit(77)

TYPES = {"double": 1, "u64": 4, "u32": 13, "i32": 5, "i64": 3, "fixed64": 6, "text": 9, "bool": 8}
MESSAGES = {
    "Clock": "clock_id:1:u32 timestamp:2:u64 is_incremental:3:bool",
    "ClockSnapshot": "clocks:1:*Clock primary_trace_clock:2:u32",
    "DebugAnnotation": "uint_value:3:u64 string_value:6:text name:10:text",
    "TrackEvent": "debug_annotations:4:*DebugAnnotation type:9:u32 name_iid:10:u64 track_uuid:11:u64 name:23:text "
                  "counter_value:30:i64 double_counter_value:44:double source_location_iid:34:u64 flow_ids:47:*fixed64 terminating_flow_ids:48:*fixed64",
    "EventName": "iid:1:u64 name:2:text",
    "SourceLocation": "iid:1:u64 file_name:2:text line_number:4:u32",
    "InternedData": "event_names:2:*EventName source_locations:4:*SourceLocation",
    "TrackEventDefaults": "track_uuid:11:u64",
    "TracePacketDefaults": "track_event_defaults:11:TrackEventDefaults timestamp_clock_id:58:u32",
    "Process": "pid:1:i32 process_name:6:text process_labels:8:*text",
    "Thread": "pid:1:i32 tid:2:i64 thread_name:5:text",
    "Counter": "unit:3:u32 unit_name:6:text",
    "TrackDescriptor": "uuid:1:u64 name:2:text process:3:Process thread:4:Thread parent_uuid:5:u64 counter:8:Counter",
    "TracePacket": "clock_snapshot:6:ClockSnapshot timestamp:8:u64 trusted_packet_sequence_id:10:u32 "
                   "track_event:11:TrackEvent interned_data:12:InternedData sequence_flags:13:u32 "
                   "timestamp_clock_id:58:u32 trace_packet_defaults:59:TracePacketDefaults "
                   "track_descriptor:60:TrackDescriptor",
    "Trace": "packet:1:*TracePacket",
}
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
BOOTTIME = 6


def trace_class():
    file = descriptor_pb2.FileDescriptorProto(name="trace.proto", package="p", syntax="proto2")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields.split():
            label, number, kind = field.split(":")
            many = kind.startswith("*")
            kind = kind.lstrip("*")
            added = message.field.add(name=label, number=int(number), label=3 if many else 1,
                                      type=TYPES.get(kind, 11))
            if kind not in TYPES:
                added.type_name = ".p." + kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("p.Trace")
    if hasattr(message_factory, "GetMessageClass"):   # from protobuf 4.22 on; 5 has no other
        return message_factory.GetMessageClass(found)
    return message_factory.MessageFactory(pool).GetPrototype(found)


def assert_all_known(message):
    """No field that the schema above lacks."""
    try:
        unknown = list(message.UnknownFields())
    except NotImplementedError:   # protobuf 5 and later
        from google.protobuf.unknown_fields import UnknownFieldSet
        unknown = list(UnknownFieldSet(message))
    assert not unknown, message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in [value] if hasattr(value, "ListFields") else value:
                assert_all_known(one)


class Sequence:
    def __init__(self):
        self.names, self.places, self.offset, self.last, self.track = {}, {}, None, None, 0


class Replay:
    """Events of each track in the order of their times."""

    def __init__(self, trace):
        self.sequences = collections.defaultdict(Sequence)
        self.tracks, self.events = {}, collections.defaultdict(list)
        self.places = {}  # of scopes, by their names
        self.times = 0  # bytes that the events' times take: more where they are further apart
        last_snapshot = -1
        for packet in trace.packet:
            sequence = self.sequences[packet.trusted_packet_sequence_id]
            if packet.HasField("clock_snapshot"):
                clocks = {c.clock_id: c.timestamp for c in packet.clock_snapshot.clocks}
                assert clocks[BOOTTIME] > last_snapshot, "the clock goes back"
                last_snapshot = clocks[BOOTTIME]
                if 64 in clocks:
                    sequence.offset, sequence.last = clocks[BOOTTIME] - clocks[64], clocks[64]
            if packet.sequence_flags & 1:
                sequence.names = {}
            if packet.HasField("trace_packet_defaults"):
                assert packet.trace_packet_defaults.timestamp_clock_id == 64
                sequence.track = packet.trace_packet_defaults.track_event_defaults.track_uuid
            for name in packet.interned_data.event_names:
                assert name.iid not in sequence.names
                sequence.names[name.iid] = name.name
            for place in packet.interned_data.source_locations:
                sequence.places[place.iid] = (place.file_name, place.line_number)
            if packet.HasField("track_descriptor"):
                uuid, labels = packet.track_descriptor.uuid, packet.track_descriptor.process.process_labels
                assert (uuid in self.tracks) == bool(labels), uuid   # the process comes again, with its labels
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            if packet.HasField("track_event"):
                self.add(sequence, packet)

    def add(self, sequence, packet):
        event = packet.track_event
        self.times += -(-packet.timestamp.bit_length() // 7)
        assert packet.sequence_flags & 2
        if packet.timestamp_clock_id == BOOTTIME:
            at = packet.timestamp
        else:
            sequence.last += packet.timestamp
            at = sequence.offset + sequence.last
        name = event.name or (sequence.names[event.name_iid] if event.name_iid else "")
        if event.source_location_iid:
            self.places[name] = sequence.places[event.source_location_iid]
        self.events[event.track_uuid or sequence.track].append((at, event, name))

    def slices(self, uuid):
        """(path, start, end, event) of each, as the begins and ends of a track nest."""
        done, stack = [], []
        for at, event, name in sorted(self.events[uuid], key=lambda e: e[0]):
            if event.type == BEGIN:
                stack.append((name, at, event))
            elif event.type == END:
                path = "/".join(s[0] for s in stack)
                _, start, begin = stack.pop()
                done.append((path, start, at, begin))
        assert not stack, "a slice has no end"
        return done


def track(replay, name, at=0):
    found = [u for u, t in replay.tracks.items() if name in (t.name, t.thread.thread_name)]
    assert found, f"no track {name}"
    return found[at]


def check_places(replay):
    """The line that each scope stands in."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pftrace_maker.c")
    with open(source, encoding="utf-8") as file:
        lines = file.read().splitlines()
    want = {}
    for number, line in enumerate(lines, 1):
        if "KN_SCOPE(" in line:
            label = line.split('KN_SCOPE("')[1].split('")')[0].replace('\\"', '"')
            want[label] = ("pftrace_maker.c", number)
    assert replay.places == want, (replay.places, want)


def check_labels(replay):
    """The notes of the run."""
    labels = [list(t.process.process_labels) for t in replay.tracks.values() if t.HasField("process")]
    want = "".join(f"k{i}={'x' * 120}, " for i in range(5)) + 'math=tf32, data=a "b"'
    assert labels == [[want]], labels


def check_threads(replay):
    for name in ["loader", "trainer", "writer", "pftrace_maker"]:
        uuid = track(replay, name)
        thread = replay.tracks[uuid].thread
        assert thread.tid and thread.pid
        counts = collections.Counter(s[0] for s in replay.slices(uuid))
        for path, n in {"all": 1, "all/outer": 5000, 'all/outer/inner "quoted"': 5000,
                        "all/outer/second": 5000, "all/outer/second/deepest": 5000}.items():
            assert counts.pop(path) == n, (name, path)
        assert set(counts) <= {"launching", "memory", "beginning", "beginning/inside", "after", "outer at once", "outer at once/inner at once"}, counts
        assert name != "pftrace_maker" or all(n == 1 for n in counts.values()) and len(counts) == 7, counts
        all_of = [s for s in replay.slices(uuid) if s[0] == "all"][0]
        outer = sum(s[2] - s[1] for s in replay.slices(uuid) if s[0] == "all/outer")
        assert 0 < outer <= all_of[2] - all_of[1]


def check_gpu(replay):
    kernel = replay.slices(track(replay, "stream 7"))
    lane = replay.slices(track(replay, "stream 7", 1))
    copy = replay.slices(track(replay, "stream 8"))
    odd = replay.slices(track(replay, "stream 9"))
    assert [s[0] for s in kernel + lane + copy] == ["sgemm<a, b>", "at the same time"] + 2 * ["[memcpy HtoD]"]
    assert [s[2] - s[1] for s in kernel + lane + copy + odd] == [4000, 3000, 500, 250, 0]
    assert copy[1][1] == copy[0][2] == odd[0][1]
    assert kernel[0][1] - copy[0][1] == 1000
    arguments = {a.name: a.string_value or a.uint_value for a in kernel[0][3].debug_annotations}
    assert arguments == {"grid": "4 x 2 x 1", "block": "128 x 1 x 1", "registers": 40, "shared memory": 2048}, arguments
    assert [a.uint_value for a in copy[0][3].debug_annotations] == [4096]
    device = replay.tracks[track(replay, "GPU 1")]
    assert replay.tracks[track(replay, "stream 7")].parent_uuid == device.uuid
    assert list(kernel[0][3].terminating_flow_ids) == [77]
    main = track(replay, "pftrace_maker")
    launches = [(at, e) for at, e, name in replay.events[main] if e.type == INSTANT and name == "launch"]
    assert len(launches) == 1 and list(launches[0][1].flow_ids) == [77]
    scope = [s for s in replay.slices(main) if s[0] == "launching"][0]
    assert scope[1] <= launches[0][0] <= scope[2] < kernel[0][1]


def check_ranges(replay):
    """Each is alone on its track, and lasts from its own begin to its own end."""
    spans = {}
    for name in ["first range", "second range"]:
        uuid = track(replay, name)
        assert replay.tracks[uuid].parent_uuid == replay.tracks[track(replay, "live bytes")].parent_uuid
        [(path, start, end, _)] = replay.slices(uuid)
        assert path == name
        spans[name] = (start, end)
    scopes = {s[0]: s[1:3] for s in replay.slices(track(replay, "pftrace_maker"))}
    first, second = spans["first range"], spans["second range"]
    inside, begun, after = scopes["beginning/inside"], scopes["beginning"], scopes["after"]
    assert first[0] <= begun[0] <= inside[0] <= inside[1] <= second[0] <= first[1] <= begun[1] <= after[1] <= second[1], (spans, scopes)


def check_memory(replay):
    uuid = track(replay, "live bytes")
    assert replay.tracks[uuid].counter.unit == 3
    values = [e.counter_value for at, e, name in sorted(replay.events[uuid], key=lambda e: e[0])]
    assert values[-2:] == [4096, 0], values


# As pftrace_maker.c samples them: the unit, and the values in order; None: of no sample.
HUGE = 2**63 - 1
COUNTERS = {
    "power": ("W", [100, -10]), "loss": ("", [2.5, 1e-300]), "held": ("B", [HUGE, -HUGE - 1, -1, 1e300]),
    'odd "\\name??λ': ("?", [1]), "group/low": ("u", [0, -1, -2]), "group/ratio (old)": ("%", [0.5, 1.5, 2.5]),
    "group/plain": ("", [0, 2]), "rounds": ("", list(range(1, 20001))),
}


def sorted_events(replay, uuid):
    return sorted(replay.events[uuid], key=lambda e: e[0])


def check_counters(replay, is_exact):
    """Each sample at its time; whole numbers are exact where they never were JSON."""
    found = {t.name: uuid for uuid, t in replay.tracks.items() if t.HasField("counter") and t.name != "live bytes"}
    assert set(found) == set(COUNTERS), sorted(found)
    process = replay.tracks[track(replay, "live bytes")].parent_uuid
    for name, (unit, want) in COUNTERS.items():
        described = replay.tracks[found[name]]
        assert described.parent_uuid == process
        assert (described.counter.unit, described.counter.unit_name) == ((3, "") if unit == "B" else (0, unit)), described
        events = sorted_events(replay, found[name])
        got = []
        for at, event, label in events:
            assert event.type == COUNTER
            is_real = event.HasField("double_counter_value")
            assert is_real != event.HasField("counter_value")
            got.append(event.double_counter_value if is_real else event.counter_value)
            assert is_real == isinstance(want[len(got) - 1], float) or not is_exact, (name, event)
        assert got == want if is_exact else [float(x) for x in got] == [float(x) for x in want], (name, got[:10])
    times = [[at for at, event, label in sorted_events(replay, found["group/" + part])] for part in ["low", "ratio (old)", "plain"]]
    assert times[0] == times[1] and times[2] == [times[0][0], times[0][2]], times
    main_ = replay.slices(track(replay, "pftrace_maker"))
    assert all(s[2] < times[0][0] for s in main_), "a sample before what came before it"
    at = sorted_events(replay, found["rounds"])[0][0]
    threads = ["loader", "trainer", "writer", "pftrace_maker"]
    around = [s for name in threads for s in replay.slices(track(replay, name)) if s[0] == "all" and s[1] <= at <= s[2]]
    assert around, "the first round is in no scope"


def check_chrome(path):
    """The same in the JSON of Chrome, read by Python's own reader."""
    with open(path, encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "C" and e["name"] != "live bytes"]
    found = collections.defaultdict(list)
    for event in sorted(events, key=lambda e: e["ts"]):
        assert event["pid"] and event["cat"] in ("counter", "counters"), event
        for key, value in event["args"].items():
            found[event["cat"], event["name"], key].append(value)
    want = {}
    for name, (unit, values) in COUNTERS.items():
        group, _, part = name.rpartition("/")
        key = ("counters", group, part + (f" ({unit})" if unit else "")) if group else ("counter", name, unit or "value")
        want[key] = values
    assert found == want, {k: (found.get(k), v) for k, v in want.items() if found.get(k) != v and len(v) < 10}
    assert all(type(a) is type(b) for k, v in want.items() for a, b in zip(found[k], v)), "whole numbers became real ones"
    groups = [sorted(e["args"]) for e in events if e["cat"] == "counters"]
    assert groups == [["low (u)", "plain", "ratio (old) (%)"], ["low (u)", "ratio (old) (%)"], ["low (u)", "plain", "ratio (old) (%)"]], groups


def read(Trace, maker, path, *more):
    subprocess.run([maker, path, *more], check=True)
    return read_file(Trace, path)


def read_file(Trace, path):
    with open(path, "rb") as file:
        data = file.read()
    trace = Trace.FromString(data)
    assert_all_known(trace)
    return Replay(trace), len(data)


def check_converted(Trace, maker, knet, folder):
    """From JSON to Perfetto's format: every event, at the same time."""
    source, path = os.path.join(folder, "t.json"), os.path.join(folder, "converted.pftrace")
    subprocess.run([maker, source], check=True)
    check_chrome(source)
    check_chrome_ranges(source)
    subprocess.run([knet, "report", source, "--format", "pftrace", "--output", path], check=True)
    replay, _ = read_file(Trace, path)
    check_labels(replay)
    check_threads(replay)
    check_places(replay)
    check_gpu(replay)
    check_memory(replay)
    check_counters(replay, False)
    check_report(knet, source)


def check_chrome_ranges(path):
    """Ranges are asynchronous events, each with an id of its own."""
    with open(path, encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("cat") == "range"]
    found = {e["name"]: e["id"] for e in events}
    assert sorted((e["name"], e["ph"]) for e in events) == [(n, ph) for n in ["first range", "second range", "third range"] for ph in "be"], events
    assert all(e["id"] == found[e["name"]] and e["pid"] for e in events), events
    assert len(set(found.values())) == 3, found
    at = {(e["name"], e["ph"]): e["ts"] for e in events}
    assert at["first range", "b"] <= at["second range", "b"] <= at["first range", "e"] <= at["second range", "e"], at


def check_report(knet, source):
    """The counters below the table, from the samples of a trace."""
    data = json.loads(subprocess.run([knet, "report", source, "--json"], check=True, stdout=subprocess.PIPE).stdout)
    assert {c["name"] for c in data["counters"]} == set(COUNTERS)
    for c in data["counters"]:
        unit, values = COUNTERS[c["name"]]
        values = [float(v) for v in values]
        assert (c["unit"], c["n"], c["first"], c["last"]) == (unit, len(values), values[0], values[-1]), c
        assert (c["min"], c["max"]) == (min(values), max(values)), c


def check_same_start(Trace, knet, folder):
    """Of two that start together the longer one is outside."""
    source, path = os.path.join(folder, "s.json"), os.path.join(folder, "s.pftrace")
    with open(source, "w", encoding="utf-8") as file:
        file.write("[" + ",".join('{"ph":"X","name":"%s","pid":1,"tid":7,"ts":5,"dur":%d}' % each
                                  for each in [("inner", 3), ("outer", 10), ("middle", 6)]) + "]")
    subprocess.run([knet, "report", source, "--format", "pftrace", "--output", path], check=True)
    replay, _ = read_file(Trace, path)
    found = [s[:3] for uuid in replay.tracks if replay.tracks[uuid].thread.tid == 7 for s in replay.slices(uuid)]
    assert sorted((s[0], s[2] - s[1]) for s in found) == [("outer", 10000), ("outer/middle", 6000), ("outer/middle/inner", 3000)], found


def check_same_starts(Trace, knet, folder):
    """Wherever in a long trace."""
    source, path = os.path.join(folder, "s.json"), os.path.join(folder, "s.pftrace")
    spans = [("odd", 1, 1)] + [(name, 10 + 20 * i, dur) for i in range(5000) for name, dur in [("inner", 5), ("outer", 10)]]
    with open(source, "w", encoding="utf-8") as file:
        file.write("[" + ",".join('{"ph":"X","name":"%s","pid":1,"tid":7,"ts":%d,"dur":%d}' % each for each in spans) + "]")
    subprocess.run([knet, "report", source, "--format", "pftrace", "--output", path], check=True)
    replay, _ = read_file(Trace, path)
    counts = collections.Counter(s[0] for uuid in replay.tracks for s in replay.slices(uuid))
    assert counts == {"odd": 1, "outer": 5000, "outer/inner": 5000}, counts


def main():
    Trace = trace_class()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.pftrace")
        replay, size = read(Trace, sys.argv[1], path)
        check_labels(replay)
        check_threads(replay)
        check_places(replay)
        check_gpu(replay)
        check_memory(replay)
        check_ranges(replay)
        check_counters(replay, True)
        n = sum(e[1].type != END for events in replay.events.values() for e in events)
        fixed = size - replay.times
        assert fixed / n <= 28, f"{fixed / n:.1f} bytes an event beside its times"
        print(f"{n} events, {size / n:.1f} bytes each, {fixed / n:.1f} beside their times")
        replay, size = read(Trace, sys.argv[1], path, "1000000")  # as whole as a longer one
        assert size <= 1000000 + 256
        check_labels(replay)
        skipped = [e for events in replay.events.values() for at, e, name in events if name == "the trace is not complete"]
        if len(sys.argv) > 2:
            check_same_start(Trace, sys.argv[2], folder)
            check_same_starts(Trace, sys.argv[2], folder)
            check_converted(Trace, sys.argv[1], sys.argv[2], folder)
        assert len(skipped) == 1 and skipped[0].debug_annotations[0].uint_value > 10000


main()
