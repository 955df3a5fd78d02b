"""Decides for each block of a log what it is for, and which module and line it belongs to.

Note [Kinds of memory]: what a module or an optimizer holds is known (`owners`). All other blocks are classified by
where they were allocated. A node of the graph is numbered before its operator allocates, so an allocation outside of
modules belongs to the forward pass if a node was made since the one before, as for a loss function. A backward node's
module and line are those of the allocation in the forward pass that has its number. A block of the forward pass is an
activation if it is held when the backward pass begins; in a program without a backward pass, if another module runs
while it is held.
"""

from __future__ import annotations

import torch

from .log import ACCUMULATES, Log, is_forward, is_optimizer, is_workspace
from .modules import FIRST_MODULE, Modules
from .report import KINDS, Kind

PHASES = ("outside of modules", "forward", "backward", "recomputation", "optimizer")
OUTSIDE, FORWARD, BACKWARD, RECOMPUTATION, OPTIMIZER = range(len(PHASES))
_CODES = {kind: code for code, kind in enumerate(KINDS)}


class Kinds:
    """For each block of the log: `kind` (an index of `KINDS`), `phase` (of `PHASES`), `module` (a name) and `line`."""

    def __init__(self, log: Log, modules: Modules, marks: list[tuple[int, int, str, str]]) -> None:
        self._log = log
        self._names = modules.names
        self._gathers = torch.tensor([False] * FIRST_MODULE + modules.gathers)
        self.phase = self._phases()
        of_forward = self._nodes()
        self.module_tag = log.tag.clone()
        self.line = log.line.clone()
        known = of_forward >= 0
        self.module_tag[known] = log.tag[of_forward[known]]
        self.line[known] = log.line[of_forward[known]]
        self.kind = self._kinds()
        self._owners: dict[int, str] = {}
        for block, found in log.marked(marks).items():
            # The strongest mark, and its module if it names one.
            kind, module = min(found, key=lambda each: (_CODES[each[0]], not each[1]))
            self.kind[block] = _CODES[kind]
            self._owners[block] = module or next((name for _, name in found if name), "")

    def module(self, block: int) -> str:
        """The module that owns the block or allocated it; empty if there is none."""
        if block in self._owners:
            return self._owners[block]
        return self.name(int(self.module_tag[block]))

    def name(self, tag: int) -> str:
        return self._names[tag - FIRST_MODULE] if tag >= FIRST_MODULE else ""

    def _phases(self) -> torch.Tensor:
        log = self._log
        in_module = is_forward(log.tag)
        phase = torch.where(in_module, FORWARD, OUTSIDE)
        phase[self._makes_nodes() & ~in_module] = FORWARD
        phase[is_optimizer(log.tag)] = OPTIMIZER
        phase[log.backward] = BACKWARD
        phase[log.backward & in_module & ~self._gathers[log.tag]] = RECOMPUTATION
        return phase

    def _makes_nodes(self) -> torch.Tensor:
        """Whether a block was allocated by an operator that made a node, or by the same line as part of it."""
        log = self._log
        result = torch.zeros(len(log.size), dtype=torch.bool)
        passes = log.backward.cumsum(0)  # a view may have made a node in the step before
        for thread in log.thread.unique().tolist():
            here = (log.thread == thread).nonzero().flatten()
            number, step = log.next_node[here], passes[here]
            made = torch.zeros(len(here), dtype=torch.bool)
            made[1:] = (number[1:] != number[:-1]) & (step[1:] == step[:-1])
            leader = torch.where(made, torch.arange(len(here)), 0).cummax(0).values
            result[here] = made[leader] & (log.line[here] == log.line[here][leader])
        return result

    def _nodes(self) -> torch.Tensor:
        """For each block allocated by a node of a backward pass the block that the node's operator allocated; or -1."""
        log = self._log
        result = torch.full((len(log.size),), -1)
        by_node = log.backward & (log.thread_of_node != 0) & (log.node != ACCUMULATES) & (self.phase == BACKWARD)
        for thread in log.thread_of_node[by_node].unique().tolist():
            made = ((log.thread == thread) & ~by_node).nonzero().flatten()
            if len(made) == 0:
                continue
            wanted = (by_node & (log.thread_of_node == thread)).nonzero().flatten()
            numbers = log.next_node[made].contiguous()
            number = log.node[wanted] + 1
            at = torch.searchsorted(numbers, number)
            exact = numbers[at.clamp(max=len(made) - 1)] == number
            # An operator without memory of its own, such as a view, is taken for the one before.
            before = torch.where(exact, at, at - 1)
            result[wanted] = torch.where(before >= 0, made[before.clamp(0, len(made) - 1)], -1)
        return result

    def _kinds(self) -> torch.Tensor:
        log = self._log
        kind = torch.full((len(log.size),), _CODES[Kind.DATA])
        kind[self.phase == BACKWARD] = _CODES[Kind.BACKWARD]
        kind[self.phase == OPTIMIZER] = _CODES[Kind.OPTIMIZER]
        passes = (self.phase == FORWARD) | (self.phase == RECOMPUTATION)
        kind[passes] = torch.where(self._is_kept()[passes], _CODES[Kind.ACTIVATIONS], _CODES[Kind.FORWARD])
        kind[(self.phase == RECOMPUTATION) & (kind == _CODES[Kind.FORWARD])] = _CODES[Kind.BACKWARD]
        kind[self._gathers[log.tag]] = _CODES[Kind.GATHERED]
        kind[is_workspace(log.tag)] = _CODES[Kind.WORKSPACES]
        return kind

    def _is_kept(self) -> torch.Tensor:
        """Whether a block of a forward pass is an activation (Note [Kinds of memory])."""
        log = self._log
        none = torch.tensor([log.events])
        backward = torch.cat([log.allocations[self.phase == BACKWARD], none])
        begins = backward[torch.searchsorted(backward, log.allocations, right=True)]
        # The first allocation of another module.
        tag = log.tag
        changes = torch.cat([log.allocations[1:][tag[1:] != tag[:-1]], none])
        other = changes[torch.searchsorted(changes, log.allocations, right=True)]
        kept = torch.where(begins < log.events, begins < log.freed, other < log.freed)
        return kept | (log.freed == log.events)
