"""The capture of graphs."""

from __future__ import annotations

import contextlib
import os
from types import TracebackType
from typing import Any, ClassVar

import torch

from .. import _C
from .arguments import check_type, pool_id, truth
from .device import _lazy_init, synchronize
from .graph_hooks import GraphHooks
from .memory import empty_cache
from .memory_pools import MemPool
from .streams import Stream, StreamContext

Pool = tuple[int, int]


def is_current_stream_capturing() -> bool:
    """Whether the current stream is being captured. Does not initialise the device."""
    return _C.is_current_stream_capturing()


def graph_pool_handle() -> Pool:
    """The id of a new memory pool, for graphs that share one.

    Graphs may share a pool if they are replayed in the order in which they were captured, and one at a time: each graph
    overwrites what the previous one leaves in memory.
    """
    return _C.graph_pool_handle()


class CUDAGraph(_C.Graph, GraphHooks):
    """A captured graph, with the name of `torch.cuda`'s class; `torch.accelerator.Graph` makes the same graphs.

    Capture with `graph`, or with `capture_begin` and `capture_end` on a stream other than the default one.

    Args:
        keep_graph: whether the captured graph is kept. If so, `instantiate`, which may be called repeatedly, or the
            first `replay` makes it ready to run; otherwise `capture_end` does.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        _lazy_init()
        keep_graph = truth("keep_graph", keep_graph)
        _C.Graph.__init__(self, keep_graph)
        GraphHooks.__init__(self)
        self._keeps_graph = keep_graph
        self._awaits_instantiation = False
        self._device: int | None = None  # of the capture

    def capture_begin(
        self, pool: Pool | MemPool | None = None, capture_error_mode: str = "global", check_input_liveness: bool = False
    ) -> None:
        """Starts to capture the current stream: its work does not run, but becomes part of the graph.

        Args:
            pool: the pool for memory of the captured work: `graph_pool_handle`, another graph's `pool`, a `MemPool` or
                its `id`; default one of the graph's own.
            capture_error_mode: whose waits for, and queries of, streams and events that are not captured invalidate the
                capture: those of any thread ("global"), of this thread ("thread_local"), or of none ("relaxed"). In
                every mode and thread, waits for a captured stream or event do, and so does `synchronize` of its device.
            check_input_liveness: whether each replay checks that the tensors it reads have not been freed. Requires
                ``TORCH_OPENREG_DEBUG_MEMORY=1``, which enables this check for all graphs.

        Raises:
            RuntimeError: the current stream is the default one or already captured, the graph already has a capture,
                `capture_error_mode` is unknown, or the liveness of inputs cannot be checked.
            Exception: what a hook of this graph raises. The capture has then ended, and the graph is empty.
        """
        if check_input_liveness and not _C.debugs_memory():
            raise RuntimeError(
                "openreg: check_input_liveness requires TORCH_OPENREG_DEBUG_MEMORY=1 in the environment, with which "
                "each replay checks its inputs"
            )
        check_type("capture_error_mode", capture_error_mode, str, "a str")
        super().capture_begin(None if pool is None else pool_id(pool), capture_error_mode)
        self._device = torch.accelerator.current_device_index()
        try:
            self._call_hooks("capture_start")
        except BaseException:
            super().reset()
            raise

    def capture_end(self) -> None:
        """Ends the capture. Its stream runs subsequent work normally.

        Raises:
            RuntimeError: the capture was invalidated, for example by an operator that waits for the device, or a stream
                that took part was not joined; the graph is then empty, and may capture again. Or there is no capture,
                or its stream is not current; then nothing changes.
            Exception: what a hook of this graph raises. The capture has then ended successfully.
        """
        super().capture_end()
        self._awaits_instantiation = self._keeps_graph
        self._call_hooks("capture_end")
        if not self._keeps_graph:
            self._call_hooks("instantiate")

    def instantiate(self) -> None:
        """Makes a kept graph (`keep_graph`) ready to run.

        Raises:
            RuntimeError: nothing has been captured, or the graph is not kept, and `capture_end` has called this.
        """
        super().instantiate()
        self._awaits_instantiation = False
        self._call_hooks("instantiate")

    def replay(self) -> None:
        """Queues a run of the graph on the current stream of its device. Runs of one graph do not overlap.

        Raises:
            RuntimeError: nothing has been captured.
            NotImplementedError: the graph draws random numbers, and the current stream is being captured.
        """
        if self._awaits_instantiation:
            self.instantiate()
        if self._device is not None:
            self._note_replay(self._device)
        if not self._has_replay_hooks():
            return super().replay()
        with self._replay_hooks():
            super().replay()

    def reset(self) -> None:
        """Frees the graph and its memory; replays that are queued still run.

        Raises:
            RuntimeError: a replay that this call waits for (`synchronize_before_release`) has failed.
        """
        try:
            self._release_retained()
        finally:
            self._awaits_instantiation = False
            super().reset()

    def pool(self) -> Pool:
        """The id of the pool of the graph's memory, which other graphs may share.

        Raises:
            RuntimeError: the capture has not begun.
        """
        return super().pool()

    def pools(self) -> list[Pool]:
        """The ids of all pools that the graph keeps: the one of `pool`."""
        return [self.pool()]

    def enable_debug_mode(self) -> None:
        """Enables `debug_dump`, which otherwise only emits a warning."""
        super().enable_debug_mode()

    def debug_dump(self, debug_path: str | os.PathLike[str], *, verbose: bool = True) -> None:
        """Writes the graph to a file in DOT, the language of Graphviz: a box for each kernel, edges for their order.

        Args:
            debug_path: the file.
            verbose: accepted for compatibility; the file is the same.

        Raises:
            RuntimeError: nothing has been captured, or the file cannot be written.
        """
        super().debug_dump(os.fsdecode(debug_path))

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Registers `generator` with the graph. Captured operators that draw from a generator register it too.

        Each replay draws the numbers that the operators would draw if they were called then.

        Raises:
            RuntimeError: the capture has begun, or the generator has another device type.
        """
        check_type("the generator", generator, torch.Generator, "a torch.Generator")
        super().register_generator_state(generator)


class graph:
    """Context manager: work launched inside becomes `cuda_graph`, and does not run. As `torch.cuda.graph`.

    Args:
        cuda_graph: the graph that receives it.
        pool: as in `CUDAGraph.capture_begin`.
        stream: the stream to capture, which is current inside; default a stream of the current device, which all
            captures without a `stream` on that device share.
        capture_error_mode: as in `CUDAGraph.capture_begin`.
        enable_annotations: not supported, because it requires CUDA's tools.
        check_input_liveness: as in `CUDAGraph.capture_begin`.
        annotation_config: not supported, as `enable_annotations`.

    Raises:
        TypeError: `cuda_graph` is not a `CUDAGraph`, or `stream` is not a stream.
        RuntimeError: annotations are requested; when the body begins and ends, as `CUDAGraph.capture_begin` and
            `CUDAGraph.capture_end`. An exception of the body takes precedence.
    """

    _default_streams: ClassVar[dict[int, torch.Stream]] = {}  # by device

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Pool | MemPool | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
        annotation_config: dict[str, Any] | None = None,
    ) -> None:
        check_type("the graph", cuda_graph, CUDAGraph, "a CUDAGraph")
        if enable_annotations or annotation_config is not None:
            raise RuntimeError("openreg: annotations of a graph's kernels require NVIDIA's tools; use record_function")
        if stream is None:
            device = torch.accelerator.current_device_index()
            if device not in self._default_streams:
                self._default_streams[device] = Stream()
            stream = self._default_streams[device]
        self.cuda_graph = cuda_graph
        self.capture_stream = stream
        self._stream_context = StreamContext(stream)
        self._pool, self._mode, self._check_input_liveness = pool, capture_error_mode, check_input_liveness

    def __enter__(self) -> None:
        synchronize()
        empty_cache()
        torch.accelerator.empty_host_cache()
        self._stream_context.__enter__()
        try:
            self.cuda_graph.capture_begin(self._pool, self._mode, self._check_input_liveness)
        except BaseException as error:
            self._stream_context.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            # Report the exception from inside, not the invalid capture that results from it.
            with contextlib.suppress(RuntimeError) if value is not None else contextlib.nullcontext():
                self.cuda_graph.capture_end()
        finally:
            self._stream_context.__exit__(kind, value, traceback)
