"""Events, through torch.Event and torch.openreg.Event."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("make", [torch.Event, torch.openreg.Event])
def test_an_event_has_no_index_before_it_is_recorded(make):
    event = make()
    assert event.device.type == "openreg"
    assert event.device.index is None
    assert event.event_id == 0
    assert isinstance(event, torch.Event)


def test_a_recorded_event_has_its_stream_s_index_and_an_identity():
    first, second = torch.Event("openreg"), torch.Event("openreg")
    stream = torch.Stream("openreg:1")
    first.record(stream)
    second.record(stream)
    assert first.device.index == second.device.index == 1
    assert 0 != first.event_id != second.event_id != 0


def test_interprocess_events_are_refused():
    with pytest.raises(RuntimeError, match=r"openreg: interprocess events are not supported.*synchronize\(\)"):
        torch.openreg.Event(interprocess=True)
    with pytest.raises(RuntimeError, match="openreg: interprocess events are not supported"):
        torch.openreg.Event.from_ipc_handle(0, b"")
    with pytest.raises(RuntimeError, match="not supported"):
        torch.openreg.Event().ipc_handle()
