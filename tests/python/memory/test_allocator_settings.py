"""PYTORCH_ALLOC_CONF, and the same settings made at run time."""

from __future__ import annotations

import pytest
import torch

MIB = 1 << 20


def large_blocks_stay_whole():
    def empty(size):
        return torch.empty(size, dtype=torch.uint8, device="openreg")

    def stats(*names):
        all_stats = torch.openreg.memory_stats()
        return [all_stats[name] for name in names]

    x = empty(100 * MIB)
    pointer = x.data_ptr()
    assert stats("max_split_size", "oversize_allocations.current", "oversize_segments.current") == [40 * MIB, 1, 1]
    del x
    y = empty(30 * MIB)  # smaller than the limit: not in the large block
    assert y.data_ptr() != pointer
    assert stats("segment.all.current", "oversize_allocations.current") == [2, 0]
    z = empty(90 * MIB)  # near enough: in the large block, all of it
    assert z.data_ptr() == pointer
    assert stats("allocated_bytes.all.current", "inactive_split.all.current") == [130 * MIB, 0]
    assert stats("oversize_allocations.current", "oversize_allocations.allocated") == [1, 2]
    del z
    empty(60 * MIB)  # 40 MiB would be lost, and max_non_split_rounding_mb allows 20
    assert stats("oversize_segments.current", "oversize_segments.peak") == [2, 2]


def test_max_split_size_keeps_large_blocks_whole(run_alone):
    run_alone(large_blocks_stay_whole, PYTORCH_ALLOC_CONF="max_split_size_mb:40", TORCH_OPENREG_MEMORY="1GiB")


def sizes_are_rounded():
    def rounded(size):
        before = torch.openreg.memory_allocated()
        x = torch.empty(size, dtype=torch.uint8, device="openreg")
        stats = torch.openreg.memory_stats()
        assert stats["requested_bytes.all.current"] == x.numel()
        return torch.openreg.memory_allocated() - before

    assert rounded(1200 * 1024) == 1280 * 1024  # between 1 and 2 MiB there are four steps
    assert rounded(5 * MIB) == 5 * MIB
    assert rounded(5 * MIB + 1) == 6 * MIB
    assert rounded(100) == 512


def test_roundup_power2_divisions_rounds_sizes_up(run_alone):
    run_alone(sizes_are_rounded, PYTORCH_ALLOC_CONF="roundup_power2_divisions:4")


def divisions_depend_on_the_size():
    def rounded(size):
        before = torch.openreg.memory_allocated()
        x = torch.empty(size, dtype=torch.uint8, device="openreg")
        return torch.openreg.memory_allocated() - before + 0 * x.numel()

    settings = torch.openreg.memory._snapshot()["allocator_settings"]
    assert settings["roundup_power2_divisions"]["256"] == 1, settings
    assert rounded(33 * MIB) == 40 * MIB  # eight steps from 32 to 64 MiB were 36; four are 40
    assert rounded(300 * MIB) == 300 * MIB


def test_roundup_power2_divisions_may_differ_by_size(run_alone):
    run_alone(
        divisions_depend_on_the_size,
        PYTORCH_ALLOC_CONF="roundup_power2_divisions:[64:4,256:1,>:1]",
        TORCH_OPENREG_MEMORY="1GiB",
    )


def the_oldest_goes():
    def empty(size):
        return torch.empty(size, dtype=torch.uint8, device="openreg")

    empty(1)  # has a segment of its own from now on
    streams = [torch.openreg.Stream() for _ in range(3)]
    blocks = []
    for stream in streams:
        with stream:
            blocks.append(empty(20 * MIB))
    blocks[1] = None
    empty(1)  # blocks[1] is free for longer than what follows
    blocks[0] = None
    assert torch.openreg.memory_reserved() == 62 * MIB
    x = empty(10 * MIB)  # more than half of 100 MiB are reserved: 12 MiB have to go, the oldest are 20
    used = {segment["stream"] for segment in torch.openreg.memory_snapshot()}
    assert used == {0, streams[0].stream_id, streams[2].stream_id}
    stats = torch.openreg.memory_stats()
    assert stats["reserved_bytes.all.current"] == 52 * MIB
    assert stats["num_alloc_retries"] == stats["num_ooms"] == 0
    assert x.numel() == 10 * MIB


def test_garbage_collection_frees_the_least_recently_used_memory(run_alone):
    run_alone(the_oldest_goes, PYTORCH_ALLOC_CONF="garbage_collection_threshold:0.5", TORCH_OPENREG_MEMORY="100MiB")


def one_warning():
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for device in (0, 1):
            torch.empty(1, device=f"openreg:{device}")
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    print(*(str(w.message).splitlines()[0] for w in caught), sep="\n")


def test_keys_that_mean_nothing_here_are_named_in_one_warning(run_alone):
    settings = "expandable_segments:True,max_split_size_mb:100,backend:native,roundup_power2_divisions:[64:4,>:1]"
    warning, *others = run_alone(one_warning, PYTORCH_ALLOC_CONF=settings).splitlines()
    assert "(got expandable_segments, backend)" in warning and "docs/settings.md" in warning
    assert not others


def no_warning():
    import warnings

    warnings.simplefilter("error")
    torch.empty(1, device="openreg")


def test_keys_that_are_served_are_not_warned_of(run_alone):
    run_alone(
        no_warning,
        PYTORCH_ALLOC_CONF="max_split_size_mb:100,garbage_collection_threshold:0.8,roundup_power2_divisions:4,"
        "max_non_split_rounding_mb:30,pinned_use_background_threads:False,pinned_max_round_threshold_mb:4",
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("max_split_size_mb:1", "max_split_size_mb too small"),
        pytest.param(*("garbage_collection_threshold:2", "set it in (0.0, 1.0)"), marks=pytest.mark.full),
        pytest.param(*("roundup_power2_divisions:3", "power"), marks=pytest.mark.full),
        ("max_split_size_mb:many", ""),
        pytest.param(
            "max_split_size_mb",
            "",
            marks=pytest.mark.skipif(
                torch.version.cuda is not None,
                reason="a CUDA build of torch reads the setting when it is loaded, and aborts",
            ),
        ),
    ],
)
def test_a_malformed_value_is_an_error_at_the_first_use_and_not_before(first_use_errors, settings, reason):
    first, second = first_use_errors(PYTORCH_ALLOC_CONF=settings)
    assert first.startswith(f"openreg: PYTORCH_ALLOC_CONF is malformed (got {settings}, expected key:value,")
    assert reason in first and first == second


def settings_at_run_time():
    x = torch.empty(1200 * 1024, dtype=torch.uint8, device="openreg")
    assert torch.openreg.memory_allocated() == 1200 * 1024
    del x
    torch._C._accelerator_setAllocatorSettings("roundup_power2_divisions:4,max_split_size_mb:64")
    y = torch.empty(1200 * 1024, dtype=torch.uint8, device="openreg")
    assert torch.openreg.memory_allocated() == 1280 * 1024
    assert [torch.openreg.memory_stats(device)["max_split_size"] for device in (0, 1)] == [64 * MIB, 64 * MIB]
    del y
    assert "max_split_size_mb:64" in torch.openreg.memory._snapshot()["allocator_settings"]["PYTORCH_ALLOC_CONF"]


def test_settings_can_be_made_at_run_time(run_alone):
    run_alone(settings_at_run_time)
