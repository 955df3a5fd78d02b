"""The race detector and memory that several processes use: each detects races of its own streams."""

from __future__ import annotations

from collections.abc import Iterator

import peer as peer_module
import pytest
import torch
from devices import DEVICE
from peer import Peer
from race_modes import race_detection

from torch_openreg import _C

REPORT = "unsynchronized accesses to the same memory"


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    process = Peer()
    process.call(torch.openreg.set_race_detection_mode, "error")
    yield process
    assert process.end() == 0


@pytest.fixture(autouse=True)
def x(peer: Peer) -> Iterator[torch.Tensor]:
    """A tensor that the other process has, too."""
    with race_detection("error"):
        _C.take_race_reports()  # those of earlier tests
        tensor = torch.zeros(1000, device=DEVICE)
        peer.call(peer_module.keep, "x", tensor)
        yield tensor
        assert _C.take_race_reports() == [] and peer.call(peer_module.take_race_reports) == []
        peer.call(peer_module.forget, "x")


def races(stream: torch.Stream, tensor: torch.Tensor) -> str:
    with torch.openreg.stream(stream), pytest.raises(torch.openreg.UnsynchronizedAccessError) as caught:
        tensor + 1
    assert _C.take_race_reports() == [str(caught.value)]
    return str(caught.value)


def test_a_received_tensor_may_be_used_on_any_stream(peer, x):
    """Its sender has waited."""
    torch.openreg._sleep(50_000_000)
    x.fill_(3)
    assert peer.call(peer_module.sum_on_another_stream, x) == 3000


def test_sending_a_tensor_waits_and_so_orders_what_its_sender_does_later(peer, x):
    x.fill_(1)
    peer.call(peer_module.echo, x)
    with torch.openreg.stream(torch.Stream()):
        x + 1


def test_work_that_is_waited_for_before_each_message_is_silent(peer, x):
    for i in range(1, 4):
        with torch.openreg.stream(torch.Stream()):
            x.add_(1)
            torch.accelerator.current_stream().synchronize()
        assert peer.call(peer_module.sum_of_kept_on_another_stream, "x") == (2 * i - 1) * 1000
        peer.call(peer_module.add_to_kept_and_wait, "x")


def test_accesses_of_two_processes_are_not_compared(peer, x):
    """Neither knows what the other does."""
    x.fill_(1)
    assert peer.call(peer_module.sum_of_kept_on_another_stream, "x") in (0, 1000)
    torch.accelerator.synchronize()


def test_streams_of_the_receiver_race_with_each_other(peer, x):
    with pytest.raises(RuntimeError, match=REPORT) as caught:
        peer.call(peer_module.write_and_read_on_two_streams, "x", False)
    (report,) = peer.call(peer_module.take_race_reports)
    assert report in str(caught.value)
    assert "aten::add_.Tensor wrote `self`" in report and "aten::add.Tensor reads `self`" in report
    assert "of a block of 3.91 KiB of another process, received by " in report
    peer.call(peer_module.write_and_read_on_two_streams, "x", True)


def test_a_tensor_that_comes_back_is_the_memory_that_was_sent(peer, x):
    back = peer.call(peer_module.get, "x")
    x.fill_(2)
    side = torch.Stream()
    report = races(side, back)
    assert "aten::fill_.Scalar wrote `self`" in report and "allocated on stream 0 of openreg:0" in report
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        assert (back + 1).sum().item() == 3000
