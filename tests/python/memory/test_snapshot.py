"""Snapshots and the history of the allocator, and PyTorch's viewers, which read them."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch.cuda import _memory_viz

MIB = 1 << 20

memory = torch.openreg.memory
record = memory._record_memory_history


@pytest.fixture(autouse=True)
def _nothing_is_cached_or_recorded():
    gc.collect()
    torch.openreg.empty_cache()
    yield
    record(None)
    memory._set_memory_metadata("")


def empty(size, device="openreg"):
    return torch.empty(size, dtype=torch.uint8, device=device)


def trace(device=0):
    return memory._snapshot()["device_traces"][device]


def actions(device=0):
    return [entry["action"] for entry in trace(device)]


def block_of(tensor):
    """The snapshot's block of a tensor's memory."""
    address = tensor.untyped_storage().data_ptr()
    blocks = [block for segment in memory._snapshot()["segments"] for block in segment["blocks"]]
    (block,) = [block for block in blocks if block["address"] == address]
    return block


def names(frames):
    return [frame["name"] for frame in frames]


# --- What is there ---


def test_segments_have_the_keys_and_figures_of_cuda():
    stream = torch.openreg.Stream(0)  # nothing else allocates on it
    with stream:
        x, y = empty(3 * MIB + 1), empty(1000)
    segments = [s for s in memory._snapshot()["segments"] if (s["device"], s["stream"]) == (0, stream.stream_id)]
    small, large = sorted(segments, key=lambda s: s["total_size"])
    assert set(large) == {
        "device",
        "address",
        "total_size",
        "allocated_size",
        "active_size",
        "requested_size",
        "stream",
        "segment_type",
        "segment_pool_id",
        "is_expandable",
        "frames",
        "blocks",
    }
    assert large["segment_pool_id"] == (0, 0)
    assert (large["segment_type"], small["segment_type"]) == ("large", "small")
    assert (large["total_size"], small["total_size"]) == (4 * MIB, 2 * MIB)
    assert large["allocated_size"] == large["active_size"] == 3 * MIB + 512
    assert large["requested_size"] == 3 * MIB + 1
    first, rest = large["blocks"]
    assert first == {
        "address": x.data_ptr(),
        "size": 3 * MIB + 512,
        "requested_size": 3 * MIB + 1,
        "state": "active_allocated",
        "frames": [],
    }
    assert (rest["address"], rest["size"]) == (x.data_ptr() + 3 * MIB + 512, MIB - 512)
    assert (rest["state"], rest["requested_size"]) == ("inactive", 0)
    assert y.numel() == 1000


@pytest.mark.needs_engines("a query would run the work that it asks about")
def test_a_block_that_another_stream_uses_is_pending(stream_at_work):
    x = empty(3 * MIB)
    address = x.data_ptr()
    x.record_stream(stream_at_work)
    del x
    blocks = [(b, s) for s in memory._snapshot()["segments"] for b in s["blocks"] if b["address"] == address]
    assert not stream_at_work.query(), "too fast a machine for this test"
    ((block, segment),) = blocks
    assert block["state"] == "active_pending_free"
    assert (segment["allocated_size"], segment["active_size"]) == (0, 3 * MIB)


def test_segments_name_their_stream_and_device():
    stream = torch.openreg.Stream(1)
    with stream:
        x = empty(3 * MIB, "openreg:1")
    (segment,) = [s for s in memory._snapshot()["segments"] if s["address"] == x.data_ptr()]
    assert (segment["device"], segment["stream"]) == (1, stream.stream_id)


def test_blocks_cover_their_segments_and_the_sums_are_the_statistics():
    kept = [empty(size) for size in (1000, 3 * MIB, 5000, 7 * MIB, MIB)]
    del kept[1]
    segments = [s for s in memory._snapshot()["segments"] if s["device"] == 0]
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == address
            address += block["size"]
        assert address == segment["address"] + segment["total_size"]
    stats = torch.openreg.memory_stats()
    assert len(segments) == stats["segment.all.current"]
    for key, name in (("total", "reserved"), ("allocated", "allocated"), ("active", "active")):
        assert sum(s[f"{key}_size"] for s in segments) == stats[f"{name}_bytes.all.current"]
    assert sum(s["requested_size"] for s in segments) == stats["requested_bytes.all.current"]


def test_a_snapshot_may_be_of_one_device():
    record()
    x, y = empty(3 * MIB), empty(3 * MIB, "openreg:1")
    snapshot = memory._snapshot("openreg:1")
    assert {segment["device"] for segment in snapshot["segments"]} == {1}
    assert not snapshot["device_traces"][0] and snapshot["device_traces"][1]
    assert len(memory._snapshot()["device_traces"]) == torch.openreg.device_count()
    assert x.shape == y.shape


def test_allocator_settings_are_those_in_force():
    settings = memory._snapshot()["allocator_settings"]
    assert settings["max_split_size"] == -1
    assert settings["garbage_collection_threshold"] == 0
    assert settings["expandable_segments"] is False
    assert list(settings["roundup_power2_divisions"])[:3] == ["1", "2", "4"]


# --- History ---


def test_each_action_is_an_entry():
    torch.openreg.empty_cache()
    record()
    x = empty(3 * MIB)
    y = empty(2 * MIB)
    with pytest.raises(torch.OutOfMemoryError):
        empty(2**45)
    address = x.data_ptr()
    del x
    torch.openreg.empty_cache()
    del y
    torch.openreg.empty_cache()
    memory._snapshot()
    entries = trace()
    assert [(e["action"], e["size"]) for e in entries] == [
        ("segment_alloc", 4 * MIB),
        ("alloc", 3 * MIB),
        ("segment_map", 2 * MIB),
        ("alloc", 2 * MIB),
        ("oom", 2**45),
        ("free_requested", 3 * MIB),
        ("free_completed", 3 * MIB),
        ("segment_unmap", 2 * MIB),
        ("free_requested", 2 * MIB),
        ("free_completed", 2 * MIB),
        ("segment_free", 4 * MIB),
        ("snapshot", 0),
        ("snapshot", 0),
    ]
    keys = {"action", "addr", "size", "stream", "time_us", "pool_id", "frames", "compile_context", "user_metadata"}
    for entry in entries:
        assert set(entry) == (keys - {"addr"} | {"device_free"} if entry["action"] == "oom" else keys)
        assert (entry["stream"], entry["pool_id"]) == (0, (0, 0))
    assert next(e["addr"] for e in entries if e["action"] == "alloc") == address
    assert entries[4]["device_free"] == torch.openreg.mem_get_info()[0] - 6 * MIB
    times = [entry["time_us"] for entry in entries]
    assert times == sorted(times)


def test_history_is_of_each_device():
    record()
    x = empty(3 * MIB, "openreg:1")
    assert actions(0) == ["snapshot"]
    assert actions(1)[:2] == ["segment_alloc", "alloc"]
    assert x.numel() == 3 * MIB


def test_entries_have_the_stream_and_the_pool():
    record()
    stream, pool = torch.openreg.Stream(), torch.openreg.MemPool()
    with stream, torch.openreg.use_mem_pool(pool):
        x = empty(3 * MIB)
    (entry,) = [e for e in trace() if e["action"] == "alloc"]
    assert (entry["stream"], entry["pool_id"]) == (stream.stream_id, pool.id)
    assert x.numel() == 3 * MIB


def test_history_is_a_ring():
    kept = empty(512)
    record(max_entries=4)
    for size in (1, 2, 3):
        empty(size * MIB)
    assert [(e["action"], e["size"]) for e in trace()][-4:] == [
        ("alloc", 3 * MIB),
        ("free_requested", 3 * MIB),
        ("free_completed", 3 * MIB),
        ("snapshot", 512),
    ]
    assert len(trace()) == 4
    assert kept.numel() == 512


def test_what_was_recorded_stays_until_it_is_cleared():
    record()
    empty(MIB)
    count = len(trace())
    record()
    assert len(trace()) == count + 1
    record(clear_history=True)
    assert actions() == ["snapshot"]
    empty(MIB)
    record(None)
    assert trace() == []


def test_nothing_is_recorded_unless_it_was_asked_for():
    empty(MIB)
    assert trace() == []
    record("state")
    x = empty(MIB)
    assert trace() == []
    assert "test_nothing_is_recorded_unless_it_was_asked_for" in names(block_of(x)["frames"])


@pytest.mark.parametrize(
    "skipped", ["alloc", "annotate", "free_completed", "oom", "segment_alloc", "segment_map", "snapshot"]
)
def test_actions_can_be_skipped(skipped):
    def happens():
        x = empty(3 * MIB)
        y = empty(3 * MIB)
        memory._annotate_tensor(y, "y")
        with pytest.raises(torch.OutOfMemoryError):
            empty(2**45)
        assert x.shape == y.shape

    record()
    happens()
    everything = actions()
    assert skipped in everything
    torch.openreg.empty_cache()
    record(clear_history=True, skip_actions=[skipped])
    happens()
    assert actions() == [action for action in everything if action != skipped]


def test_words_of_the_program_go_into_the_entries():
    record()
    memory._set_memory_metadata("step 1")
    x = empty(MIB)
    memory._set_memory_metadata("")
    y = empty(MIB)
    assert memory._get_memory_metadata() == ""
    memory._set_memory_metadata({"step": 2})
    assert memory._get_memory_metadata() == '{"step":2}'
    z = empty(MIB)
    assert [e["user_metadata"] for e in trace() if e["action"] == "alloc"] == ["step 1", "", '{"step":2}']
    assert x.shape == y.shape == z.shape


def test_words_are_of_one_thread():
    record()
    kept, texts = [empty(MIB)], []

    def allocate():
        texts.append(memory._get_memory_metadata())
        memory._set_memory_metadata("of another thread")
        kept.append(empty(MIB))

    memory._set_memory_metadata("of this thread")
    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    kept.append(empty(MIB))
    assert texts == [""]
    entries = [e["user_metadata"] for e in trace() if e["action"] == "alloc"]
    assert entries == ["", "of another thread", "of this thread"]


@pytest.mark.parametrize("context", ["all", "state"])
def test_a_tensor_can_be_annotated_afterwards(context):
    memory._annotate_tensor(empty(MIB), "before the history")
    record(context=context)
    x = empty(3 * MIB)
    memory._set_memory_metadata("step 1")
    memory._annotate_tensor(x[100:], "saved for backward")
    assert memory._memory_metadata_supported()
    (entry,) = [e for e in trace() if e["action"] == "annotate"]
    address = x.untyped_storage().data_ptr()
    assert (entry["user_metadata"], entry["addr"], entry["size"]) == ("saved for backward", address, 3 * MIB)
    assert (entry["frames"] != []) == (context == "all")
    memory._annotate_tensor(empty(0), "has no memory")
    assert actions().count("annotate") == 1


def test_what_cannot_be_recorded_is_refused_and_changes_nothing():
    record(max_entries=10)
    for arguments in ({"enabled": "some"}, {"max_entries": 0}, {"compile_context": True}):
        with pytest.raises(RuntimeError):
            record(**arguments)
    x = empty(MIB)
    assert "alloc" in actions()
    assert x.numel() == MIB


# --- Stacks ---


def test_frames_name_the_function_that_allocated():
    record(stacks="python")
    x = empty(3 * MIB)
    frames = block_of(x)["frames"]
    assert names(frames)[:2] == ["empty", "test_frames_name_the_function_that_allocated"]
    assert frames[1]["filename"] == __file__
    assert Path(__file__).read_text().splitlines()[frames[1]["line"] - 1].strip() == "x = empty(3 * MIB)"
    (segment,) = [s for s in memory._snapshot()["segments"] if s["address"] == x.data_ptr()]
    assert segment["frames"] == frames
    assert [e["frames"] for e in trace() if e["action"] in ("alloc", "segment_alloc")] == [frames, frames]
    assert memory._allocation_traceback(x.data_ptr()) == frames


def test_frames_that_stacks_share_are_one_object():
    record(stacks="python")
    x, y = (empty(MIB) for _ in range(2))
    first, second = block_of(x)["frames"], block_of(y)["frames"]
    assert first == second
    entries = [e for e in trace() if e["action"] == "alloc"]
    assert all(one is other for one, other in zip(*(e["frames"] for e in entries), strict=True))


def test_frees_have_stacks_of_their_own_where_all_contexts_are_kept():
    def free_it():
        kept.clear()

    for context, expected in (("all", "free_it"), ("alloc", None), ("state", None), (None, None)):
        record(context=context, stacks="python", clear_history=True)
        kept = [empty(MIB)]
        free_it()
        entries = {e["action"]: names(e["frames"]) for e in trace()}
        assert (expected in entries["free_requested"]) if expected else entries["free_requested"] == []
        assert ("empty" in entries["alloc"]) == (context in ("alloc", "all"))


def test_cpp_frames_are_there_on_request():
    record(stacks="python")
    python_only = block_of(kept := empty(MIB))["frames"]
    record(stacks="all")
    both = block_of(again := empty(MIB))["frames"]
    assert not any("at::" in name for name in names(python_only))
    assert any("at::_ops::empty" in name for name in names(both))
    assert any("allocate_raw" in name for name in names(both))
    assert "test_cpp_frames_are_there_on_request" in names(both)
    assert kept.shape == again.shape


def test_a_traceback_is_none_where_none_was_recorded():
    x = empty(MIB)
    record(stacks="python")
    y = empty(MIB)
    assert memory._allocation_traceback(x.data_ptr()) is None
    assert memory._allocation_traceback(y.data_ptr() + 512) is None
    assert memory._allocation_traceback(12345) is None
    address = y.data_ptr()
    assert "empty" in names(memory._allocation_traceback(address))
    del y
    assert memory._allocation_traceback(address) is None


def test_backward_is_recorded_from_autograds_threads():
    record(stacks="python")
    x = torch.ones(MIB, device="openreg", requires_grad=True)
    (x * 2).sum().backward()
    assert block_of(x.grad)["state"] == "active_allocated"


# --- Viewers ---


def a_history():
    """Something of everything, recorded."""
    record(stacks="python")
    kept = [empty(30 * MIB), empty(1000)]
    empty(3 * MIB)
    with pytest.raises(torch.OutOfMemoryError):
        empty(2**45)
    torch.openreg.empty_cache()
    return kept


def test_the_viewers_stats_and_trace_read_a_dump(tmp_path):
    kept = a_history()
    file = tmp_path / "snapshot.pickle"
    memory._dump_snapshot(file)
    output = {}
    for command in ("stats", "trace"):
        viewer = [sys.executable, _memory_viz.__file__, command, str(file)]
        output[command] = subprocess.run(viewer, capture_output=True, text=True, check=True).stdout
    assert "[aa" in output["stats"] and "total_allocated: 30.0MiB" in output["stats"]
    assert "cudaMalloc" in output["trace"] and "raise OutOfMemoryError # 32.0TiB requested" in output["trace"]
    assert "[0:30.0MiB]" in output["trace"]
    assert len(kept) == 2


def test_the_viewers_flame_graphs_read_a_snapshot(capsys):
    before = memory._snapshot()
    kept = a_history()
    after = pickle.loads(pickle.dumps(memory._snapshot()))
    lines = _memory_viz.segments(after, format_flamegraph=lambda lines: lines).splitlines()
    of_kept = [line for line in lines if f"seg_{kept[0].data_ptr()};active_allocated" in line]
    (line,) = of_kept
    assert "a_history" in line and line.endswith(f" {30 * MIB}")
    lines = _memory_viz.memory(after, format_flamegraph=lambda lines: lines).splitlines()
    assert any("a_history" in line for line in lines)
    lines = _memory_viz.compare(before["segments"], after["segments"], format_flamegraph=lambda lines: lines)
    assert any(line.startswith("only_after;") and "a_history" in line for line in lines.splitlines())
    assert str(kept[0].data_ptr()) in capsys.readouterr().out


def test_flame_graphs_are_drawn_into_files(tmp_path, monkeypatch):
    """By a script that PyTorch looks for in the user's cache: here one that repeats what it is given."""
    script = tmp_path / ".cache" / "flamegraph.pl"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\nexec cat\n")
    script.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    kept = a_history()
    snapshot = memory._snapshot()
    for save, lines_of in (
        (memory._save_segment_usage, _memory_viz.segments),
        (memory._save_memory_usage, _memory_viz.memory),
    ):
        expected = lines_of(snapshot, format_flamegraph=lambda lines: lines)
        save(tmp_path / "given.svg", snapshot)
        save(tmp_path / "taken.svg")
        assert (tmp_path / "given.svg").read_text() == expected
        for name in ("given.svg", "taken.svg"):
            assert "a_history" in (tmp_path / name).read_text()
    assert len(kept) == 2


def test_the_viewers_page_has_the_snapshot_in_it():
    kept = a_history()
    for page in (_memory_viz.trace_plot(memory._snapshot()), _memory_viz.segment_plot(memory._snapshot())):
        assert "snapshot.pickle" in page and len(page) > 2000
    assert len(kept) == 2


def test_a_snapshot_can_be_augmented_with_fx_traces():
    kept = a_history()
    assert memory._snapshot(augment_with_fx_traces=True)["segments"]
    assert len(kept) == 2
