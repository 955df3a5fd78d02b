"""Tensors and other processes: they do not travel, and both sides are told."""

from __future__ import annotations

import io
import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch import multiprocessing

REFUSAL = r"openreg: a tensor of openreg:0 cannot go to another process; send tensor\.cpu\(\)"


KINDS = {
    "tensor": lambda x: x,
    "view": lambda x: x[1],
    "parameter": torch.nn.Parameter,
    "empty": lambda x: x[:0].clone(),
    "sparse": lambda x: x.to_sparse(),
    "jagged": lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged),
    "module": lambda x: torch.nn.Linear(2, 2, device=x.device),
    "list": lambda x: [torch.ones(2), x],
}


def make(kind):
    return KINDS[kind](torch.arange(6.0, device="openreg").view(2, 3))


@pytest.fixture(params=["file_descriptor", "file_system"])
def _sharing_strategy(request):
    before = multiprocessing.get_sharing_strategy()
    multiprocessing.set_sharing_strategy(request.param)
    yield
    multiprocessing.set_sharing_strategy(before)


@pytest.mark.usefixtures("_sharing_strategy")
@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_is_refused_where_it_would_be_sent(kind):
    with pytest.raises(RuntimeError, match=REFUSAL):
        ForkingPickler.dumps(make(kind))


def test_a_storage_is_refused_too():
    with pytest.raises(RuntimeError, match=REFUSAL):
        ForkingPickler.dumps(make("tensor").untyped_storage())


@pytest.mark.parametrize("kind", KINDS)
def test_pickle_and_save_are_not_concerned(kind):
    value = make(kind)
    pickle.loads(pickle.dumps(value))
    torch.save(value, io.BytesIO())


def test_tensors_of_the_cpu_travel_as_before():
    queue = multiprocessing.SimpleQueue()
    queue.put(torch.ones(2))
    received = queue.get()
    assert received.is_shared() and received.tolist() == [1, 1]


def test_memory_of_the_device_is_not_shared():
    x = torch.ones(2, device="openreg")
    model = torch.nn.Linear(2, 2, device="openreg")
    for share in (x.share_memory_, x.untyped_storage().share_memory_, model.share_memory):
        with pytest.raises(RuntimeError, match=r"openreg: memory of openreg:0 cannot be shared with other processes"):
            share()
    assert not x.is_shared() and not x.untyped_storage().is_shared()
    assert torch.ones(2).share_memory_().is_shared()


def test_a_pipe_raises_in_the_sender():
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with pytest.raises(RuntimeError, match=REFUSAL):
        sender.send(torch.ones(1, device="openreg"))
    assert not receiver.poll()


def test_a_queue_raises_in_the_receiver_which_would_wait_for_ever():
    queue = multiprocessing.Queue()
    queue.put(torch.ones(1, device="openreg"))
    with pytest.raises(RuntimeError, match=REFUSAL):
        queue.get(timeout=60)
    queue.put(torch.ones(1))
    assert queue.get(timeout=60).tolist() == [1]


def test_an_executor_and_a_pool_raise_in_the_program_and_go_on(run_python, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import get_context\n"
        "if __name__ == '__main__':\n"
        "    x, spawn = torch.ones(1, device='openreg'), get_context('spawn')\n"
        "    with ProcessPoolExecutor(1, spawn) as executor, spawn.Pool(1) as pool:\n"
        "        for call in (lambda y: executor.submit(abs, y).result(), lambda y: pool.apply(abs, (y,))):\n"
        "            try: call(x)\n"
        "            except RuntimeError as error: print(error)\n"
        "            assert call(-7) == 7\n"
    )
    result = run_python(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    assert len(result.stdout.splitlines()) == result.stdout.count("send tensor.cpu()") == 2


def test_an_argument_of_a_process_is_refused_by_start(run_python, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, torch.multiprocessing as mp\n"
        "if __name__ == '__main__':\n"
        "    process = mp.get_context('spawn').Process(target=print, args=(torch.ones(1, device='openreg'),))\n"
        "    try: process.start()\n"
        "    except RuntimeError as error: print(error)\n"
    )
    result = run_python(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    assert "send tensor.cpu()" in result.stdout


def test_a_worker_of_a_data_loader_that_gives_tensors_of_the_device_is_an_error(run_python, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\n"
        "from torch.utils.data import DataLoader, Dataset\n"
        "class Ones(Dataset):\n"
        "    def __len__(self): return 4\n"
        "    def __getitem__(self, i): return torch.ones(2, device='openreg')\n"
        "if __name__ == '__main__':\n"
        "    try: next(iter(DataLoader(Ones(), num_workers=1, multiprocessing_context='spawn')))\n"
        "    except RuntimeError as error: print(error)\n"
    )
    result = run_python(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')", timeout=240)
    assert "send tensor.cpu()" in result.stdout
