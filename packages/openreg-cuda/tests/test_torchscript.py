"""torch.cuda in functions that TorchScript has compiled."""

from __future__ import annotations

import io

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit")


def test_devices_are_selected() -> None:
    @torch.jit.script
    def devices(index: int) -> tuple[int, int, int, int]:
        before = torch.cuda.current_device()
        torch.cuda.set_device(index)
        inside = torch.cuda.current_device()
        torch.cuda.set_device(before)
        return before, inside, torch.cuda.device_count(), torch.cuda.device_index(torch.device("cuda:1"))

    assert devices(1) == (0, 1, 2, 1)
    assert torch.cuda.current_device() == 0


def test_a_device_that_is_not_there_is_refused() -> None:
    @torch.jit.script
    def select(index: int) -> None:
        torch.cuda.set_device(index)

    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        select(7)
    assert torch.cuda.current_device() == 0


def test_a_device_is_selected_for_a_block() -> None:
    @torch.jit.script
    def sum_on(index: int, n: int) -> tuple[int, torch.Tensor]:
        with torch.cuda.device(index):
            inside = torch.cuda.current_device()
            x = torch.ones([n], device=torch.device("cuda")).sum()
        return inside, x

    inside, x = sum_on(1, 3)
    assert inside == 1 and x.item() == 3 and x.device == torch.device("cuda:1")
    assert torch.cuda.current_device() == 0


def test_streams_are_those_of_the_program() -> None:
    @torch.jit.script
    def ids() -> tuple[int, int, int]:
        current = torch.cuda.current_stream(torch.device("cuda"))
        default = torch.cuda.default_stream(torch.device("cuda:1"))
        return current.id(), default.id(), default.device_index()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        assert ids() == (side.stream_id, torch.cuda.default_stream(1).stream_id, 1)


def test_streams_and_events_order_work() -> None:
    @torch.jit.script
    def compute(x: torch.Tensor) -> tuple[torch.Tensor, float, bool]:
        side = torch.cuda.Stream()
        current = torch.cuda.current_stream(torch.device("cuda"))
        side.wait_stream(current)
        begin, end = torch.cuda.Event(True, False, False), torch.cuda.Event(True, False, False)
        torch.cuda.set_stream(side)
        begin.record(side)
        y = x @ x
        end.record(side)
        torch.cuda.set_stream(current)
        current.wait_event(end)
        z = y + 1
        end.synchronize()
        return z, begin.elapsed_time(end), end.query()

    x = torch.eye(64, device="cuda")
    z, milliseconds, is_complete = compute(x)
    assert torch.equal(z, x + 1) and milliseconds > 0 and is_complete
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_a_stream_is_current_for_a_block() -> None:
    @torch.jit.script
    def inside() -> tuple[int, int, int]:
        side = torch.cuda.Stream(torch.device("cuda:0"))
        with torch.cuda.stream(side):
            current = torch.cuda.current_stream(torch.device("cuda:0")).id()
        return side.id(), current, torch.cuda.current_stream(torch.device("cuda:0")).id()

    side, current, after = inside()
    assert side == current != after == torch.cuda.current_stream().stream_id


def test_a_function_waits_for_the_device() -> None:
    @torch.jit.script
    def wait() -> None:
        torch.cuda.synchronize()
        torch.cuda.synchronize(torch.device("cuda:0"))
        torch.cuda.synchronize(1)

    torch.cuda._sleep(100_000_000)
    wait()
    assert torch.cuda.current_stream().query()


def test_an_interprocess_event_is_refused() -> None:
    @torch.jit.script
    def make() -> bool:
        return torch.cuda.Event(False, False, True).query()

    with pytest.raises(RuntimeError, match="does not support interprocess events"):
        make()


def test_a_module_is_saved_and_loaded() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.cuda.stream(torch.cuda.Stream()):
                y = x * 2
            torch.cuda.synchronize()
            return y

    file = io.BytesIO()
    torch.jit.save(torch.jit.script(Module()), file)
    file.seek(0)
    assert torch.jit.load(file)(torch.ones(2, device="cuda")).tolist() == [2, 2]
