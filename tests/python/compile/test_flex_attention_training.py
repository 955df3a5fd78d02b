"""torch.compile(flex_attention) with gradients, and what else the CPU's kernel lacks, against attention written out.

The expected values are computed on the CPU, in float64. `CASES` has the sizes,
masks, modifications and dtypes; each is computed in one block of rows and, with a small limit of memory, in a loop over
blocks.
"""

from __future__ import annotations

import functools
import importlib

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE
from functorch.compile import make_boxed_func
from slices import one_in
from torch._dynamo.backends.common import aot_autograd
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, and_masks, create_block_mask, flex_attention
from torch.testing import assert_close

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

# In PyTorch's graphs the logarithms of sums, which the backward pass reads, are float32 for float64 too.
TOLERANCES = {torch.float64: 1e-6, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 6e-3}


def of_the_device(module):
    package = "torch_openreg" if DEVICE == "openreg" else "openreg_cuda.device"
    return importlib.import_module(f"{package}._pytorch.compile.inductor.{module}")


@pytest.fixture(params=["one block", "a loop"])
def blocks(request, monkeypatch):
    """How many rows of scores are computed at a time."""
    if request.param == "a loop":
        module = of_the_device("attention_blocks")
        monkeypatch.setattr(module, "BLOCK_BYTES", 1)
        monkeypatch.setattr(module, "_FEWEST_ROWS", 24)
    with torch._inductor.config.patch(force_disable_caches=True):  # the limit is in no key
        yield


def graphs_only(gm, inputs):
    """A backend that makes the graphs which Inductor compiles, and runs their operators one by one."""

    def prepare(gm, inputs):
        of_the_device("flex_attention").replace_in(gm)
        assert not gm.graph.find_nodes(op="call_function", target=torch.ops.higher_order.flex_attention_backward)
        return make_boxed_func(gm.forward)

    return aot_autograd(fw_compiler=prepare)(gm, inputs)


# --- Modifications and masks; those that capture a tensor get it as `captured` ---


def causal(b, h, q, kv):
    return q >= kv


def window(b, h, q, kv):
    return (q - kv).abs() <= 20


def some_rows(b, h, q, kv):
    return (q > 10) & (kv % 3 != 0)  # ten rows without an allowed score


def distance(captured):
    return lambda score, b, h, q, kv: score + 0.1 * (q - kv) / (h + 1)


def bias_of_heads(captured):
    return lambda score, b, h, q, kv: score * (captured[0][h] + captured[1][b, h])


def relative_bias(captured):
    return lambda score, b, h, q, kv: score + captured[0][h, q - kv + 64]


def table(captured):
    return lambda score, b, h, q, kv: score + captured[0][q, kv]


def soft_cap(captured):
    return lambda score, b, h, q, kv: 2.0 * torch.tanh(score / 2.0)


def number(captured):
    return lambda score, b, h, q, kv: score * captured[0] + torch.tensor(0.5, device=score.device)


def element(captured):
    return lambda score, b, h, q, kv: score * (captured[0][0] + captured[1][b])


def documents(captured):
    document = captured[-1]
    return lambda b, h, q, kv: (document[q] == document[kv]) & (q >= kv)


class Case:
    def __init__(
        self,
        name,
        modification=None,
        captured=(),
        mask=None,
        sizes=(2, 4, 4, 48, 48, 16, 16),
        dtype=torch.float32,
        aux=False,
        dynamic=False,
        learned=True,
        leaves=(True, True, True),
        block=16,
        transposed=False,
        scale=None,
    ):
        self.__dict__.update({key: value for key, value in locals().items() if key != "self"})

    def inputs(self, device, dtype):
        generator = torch.Generator().manual_seed(0)
        batch, heads, kv_heads, rows, columns, width, value_width = self.sizes
        shapes = (
            (batch, heads, rows, width),
            (batch, kv_heads, columns, width),
            (batch, kv_heads, columns, value_width),
        )
        tensors = []
        for shape, leaf in zip(shapes, self.leaves, strict=True):
            x = torch.randn(shape, generator=generator, dtype=torch.float64).to(self.dtype)
            if self.transposed:
                x = x.transpose(1, 2).contiguous().transpose(1, 2)
            tensors.append(x.to(device, dtype).requires_grad_(leaf))
        captured = [
            torch.randn(shape, generator=generator, dtype=torch.float64).to(self.dtype).to(device, dtype)
            for shape in self.captured
        ]
        return tensors, [each.requires_grad_(self.learned) for each in captured]

    def run(self, device, dtype, backend):
        """Results and gradients. Without a backend: of attention written out."""
        tensors, captured = self.inputs(device, dtype)
        rows, columns = self.sizes[3:5]
        document = (torch.arange(max(rows, columns)) // 15).to(device)
        mask = self.mask([document]) if self.mask is documents else self.mask
        blocks = None
        if backend and mask:
            blocks = create_block_mask(mask, None, None, rows, columns, device=device, BLOCK_SIZE=self.block)

        def call(query, key, value, captured, blocks):
            return flex_attention(
                query,
                key,
                value,
                score_mod=self.modification and self.modification(captured),
                block_mask=blocks,
                enable_gqa=self.sizes[1] != self.sizes[2],
                return_aux=AuxRequest(lse=True, max_scores=True) if self.aux else None,
                scale=self.scale,
            )

        if backend:
            call = torch.compile(call, backend=backend, fullgraph=True, dynamic=self.dynamic or None)
            found = call(*tensors, captured, blocks)
            results = [found[0], found[1].lse, found[1].max_scores] if self.aux else [found]
        else:
            results = self.written_out(*tensors, captured, mask)[: 3 if self.aux else 1]
        loss = results[0].double().sin().sum()
        if self.aux:
            loss = loss + torch.where(results[1].isfinite(), results[1], 0).double().cos().sum()
        leaves = [each for each in (*tensors, *captured) if each.requires_grad]
        if leaves:
            loss.backward()
        return [each.detach().cpu() for each in results], [each.grad.cpu() for each in leaves]

    def written_out(self, query, key, value, captured, mask):
        groups = query.size(1) // key.size(1)
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        scores = query @ key.mT * (self.scale or query.size(-1) ** -0.5)
        indices = torch.meshgrid(*map(torch.arange, scores.shape), indexing="ij")
        if self.modification:
            scores = self.modification(captured)(scores, *indices)
        allowed = mask(*indices) if mask else torch.ones_like(scores, dtype=torch.bool)
        empty = ~allowed.any(-1)
        masked = scores.masked_fill(~allowed, -torch.inf)
        safe = masked.masked_fill(empty.unsqueeze(-1), 0)
        out = safe.softmax(-1).masked_fill(empty.unsqueeze(-1), 0) @ value
        return out, safe.logsumexp(-1).masked_fill(empty, -torch.inf), masked.amax(-1)


CASES = [
    Case("plain"),
    Case("distance", distance),
    Case("one learned tensor only", relative_bias, [(4, 128)], leaves=(False, False, False)),
    Case("no gradient of the query", leaves=(False, True, True)),
    Case("no gradient of the value", leaves=(True, True, False)),
    Case("factors and biases of heads", bias_of_heads, [(4,), (2, 4)]),
    Case("relative bias", relative_bias, [(4, 128)]),
    Case("a table", table, [(48, 48)]),
    Case("a captured tensor without a gradient", relative_bias, [(4, 128)], learned=False),
    Case("soft cap", soft_cap),
    Case("a number", number, [()], learned=False),
    Case("a learned number", number, [()]),
    Case("an element", element, [(3,), (2,)]),
    Case("causal", mask=causal),
    Case("causal, odd lengths", mask=causal, sizes=(1, 2, 2, 37, 53, 16, 16)),
    Case("odd lengths", distance, sizes=(1, 3, 3, 67, 29, 16, 16)),
    Case("odd blocks", distance, mask=and_masks(causal, window), sizes=(1, 2, 2, 61, 61, 16, 16), block=13),
    Case("rows without scores", mask=some_rows, aux=True),
    Case("documents", distance, mask=documents),
    Case("groups of heads", distance, mask=causal, sizes=(2, 6, 2, 40, 40, 16, 16)),
    Case("one head of keys", relative_bias, [(4, 128)], sizes=(2, 4, 1, 40, 40, 16, 16)),
    Case("small heads", distance, sizes=(1, 2, 2, 32, 32, 4, 4)),
    Case("odd heads", distance, sizes=(1, 2, 2, 32, 32, 24, 40)),
    Case("large heads", sizes=(1, 1, 1, 32, 32, 256, 128)),
    Case("one row", distance, sizes=(2, 4, 4, 1, 48, 16, 16)),
    Case("sums and largest scores", distance, aux=True),
    Case("sums, groups, mask", relative_bias, [(4, 128)], mask=causal, sizes=(2, 4, 2, 48, 48, 16, 16), aux=True),
    Case("a scale", scale=0.3, aux=True),
    Case("transposed", distance, mask=causal, transposed=True),
    *(
        Case(f"{str(dtype)[6:]}", relative_bias, [(4, 128)], mask=causal, dtype=dtype, aux=True)
        for dtype in (torch.bfloat16, torch.float16, torch.float64)
    ),
    Case("bfloat16, groups", soft_cap, sizes=(1, 4, 2, 40, 40, 32, 32), mask=causal, dtype=torch.bfloat16),
    Case("dynamic shapes", distance, dynamic=True),
    Case("dynamic shapes, mask, bias", relative_bias, [(4, 128)], mask=causal, dynamic=True),
]


def compare(case, backend):
    results, gradients = case.run(DEVICE, case.dtype, backend)
    expected, expected_gradients = case.run("cpu", torch.float64, None)
    tolerance = TOLERANCES[case.dtype]
    for mine, theirs in zip(results, expected, strict=True):
        assert_close(mine.double(), theirs.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
    for mine, theirs in zip(gradients, expected_gradients, strict=True):
        scale = max(1.0, theirs.abs().max().item())
        assert_close(mine.double() / scale, theirs / scale, rtol=tolerance, atol=2 * tolerance)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("case", [one_in(10, each.name, each) for each in CASES])
def test_values_and_gradients(case):
    """The graphs that Inductor gets, without C++. A tenth of the cases each time, in some seconds."""
    compare(case, graphs_only)


@pytest.mark.parametrize("blocks", ["a loop"], indirect=True)
@pytest.mark.usefixtures("blocks")
def test_a_loop_does_not_overwrite_what_follows_it():
    """The gradient of the query, of which rows are left out at the end, is as large as that of the value."""
    compare(next(each for each in CASES if each.name == "small heads"), "inductor")


@pytest.mark.parametrize("blocks", ["one block", pytest.param("a loop", marks=pytest.mark.full)], indirect=True)
@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("case", [one_in(32, each.name, each) for each in CASES])
def test_compiled_values_and_gradients(case):
    """By Inductor. One case in 32 each time; the whole takes some minutes."""
    compare(case, "inductor")


FUNCTIONS = [
    torch.tanh,
    torch.sigmoid,
    torch.exp,
    torch.expm1,
    torch.erf,
    torch.sin,
    torch.cos,
    torch.atan,
    torch.sinh,
    torch.asinh,
    torch.square,
    torch.relu,
    F.silu,
    F.gelu,
    functools.partial(F.gelu, approximate="tanh"),
    F.softplus,
    F.logsigmoid,
    F.elu,
    F.leaky_relu,
    F.hardtanh,
    F.hardswish,
    F.mish,
    F.softsign,
    torch.nan_to_num,
    lambda x: x.abs().sqrt(),
    lambda x: (x * x + 1).rsqrt(),
    lambda x: (x.abs() + 1).log(),
    lambda x: x.abs().log1p(),
    lambda x: (x.abs() + 1).log2(),
    lambda x: (x.abs() + 1).pow(1.5),
    lambda x: x.pow(3),
    lambda x: 2**x,
    lambda x: x.clamp(-1, 1),
    lambda x: torch.where(x > 0, x, 0.5 * x),
    lambda x: torch.maximum(x, 0.5 * x) + torch.minimum(x, 0.25 * x),
    lambda x: torch.logaddexp(x, -x),
    lambda x: torch.hypot(x, x + 1),
    lambda x: torch.atan2(x, x * x + 1),
    lambda x: torch.lerp(x, 2 * x, 0.25),
    lambda x: torch.addcmul(x, x, x) + torch.addcdiv(x, x, x * x + 1),
    lambda x: (x.float() * 1.5).to(x.dtype),
    lambda x: x.double().sin().to(x.dtype),
    lambda x: x.remainder(3) + x.fmod(2),
    lambda x: x - x.floor() + x.sign() * x.round().detach(),
    lambda x: torch.special.erfcx(x.abs()) + torch.special.i0(x),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_functions_of_scores(dtype):
    """Functions of one number, as a modification may call them, and operators on the indices."""

    def modification(captured):
        def modify(score, b, h, q, kv):
            integers = q // 2 + kv % 3 + (q & 5) + (kv | 2) + (q ^ kv) + (h << 1) + (q >> 1) + torch.abs(q - kv)
            small = 0.5 * torch.tanh(score)
            return sum(function(small) for function in FUNCTIONS) * 0.05 + 0.01 * integers + 0.1 * (q < kv) * score

        return modify

    compare(Case("functions", modification, sizes=(1, 2, 2, 24, 24, 16, 16), dtype=dtype), graphs_only)


def one_size(length, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, 2, length, 16, generator=generator).to(DEVICE, dtype).requires_grad_() for _ in range(3)]


def test_an_operator_without_a_rule_is_named():
    """Called for each score in turn it would not end."""

    def modify(score, b, h, q, kv):
        return score + torch.special.airy_ai(score.detach())

    run = torch.compile(functools.partial(flex_attention, score_mod=modify), backend=graphs_only)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"airy_ai\.default, which has no rule"):
        run(*one_size(16))


def test_memory_does_not_grow_with_the_square_of_the_length():
    """Of 8192 rows, whose scores are 512 MiB, one block of rows is computed at a time."""
    query, key, value = one_size(8192)
    run = torch.compile(flex_attention, backend=graphs_only)
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_allocated()
    run(query, key, value).sum().backward()
    assert torch.accelerator.max_memory_allocated() - before < 400 << 20


@pytest.mark.full
def test_a_mask_that_is_made_in_the_program_and_a_second_length():
    @torch.compile(fullgraph=True)
    def run(query, key, value):
        length = query.size(2)
        mask = create_block_mask(causal, None, None, length, length, device=query.device, BLOCK_SIZE=32)
        return flex_attention(query, key, value, block_mask=mask)

    for length in (64, 96, 100):
        ours = one_size(length)
        run(*ours).sin().sum().backward()
        theirs = [each.detach().cpu().requires_grad_() for each in ours]
        torch.nn.functional.scaled_dot_product_attention(*theirs, is_causal=True).sin().sum().backward()
        for mine, their in zip(ours, theirs, strict=True):
            assert_close(mine.grad.cpu(), their.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune-no-cudagraphs"])
@pytest.mark.filterwarnings("ignore:openreg. Inductor does not capture graphs")
def test_other_modes_train(mode):
    run = torch.compile(flex_attention, mode=mode)
    ours = one_size(64)
    for _ in range(3):
        for each in ours:
            each.grad = None
        torch.compiler.cudagraph_mark_step_begin()
        run(*ours).sin().sum().backward()
    theirs = [each.detach().cpu().requires_grad_() for each in ours]
    torch.nn.functional.scaled_dot_product_attention(*theirs).sin().sum().backward()
    for mine, their in zip(ours, theirs, strict=True):
        assert_close(mine.grad.cpu(), their.grad, rtol=1e-4, atol=1e-4)


def test_blocks_that_a_mask_does_not_list_are_left_out():
    """Masks may come without a function: the numbers of their blocks say what is allowed, as on CUDA."""
    count = torch.tensor([[[1, 2]]], dtype=torch.int32, device=DEVICE)
    numbers = torch.tensor([[[[0, 1], [0, 1]]]], dtype=torch.int32, device=DEVICE)
    ours = one_size(64)
    mask = BlockMask.from_kv_blocks(count, numbers, BLOCK_SIZE=32)
    torch.compile(flex_attention, backend=graphs_only)(*ours, block_mask=mask).sin().sum().backward()
    theirs = [each.detach().cpu().requires_grad_() for each in ours]
    allowed = torch.ones(64, 64, dtype=torch.bool)
    allowed[:32, 32:] = False
    torch.nn.functional.scaled_dot_product_attention(*theirs, attn_mask=allowed).sin().sum().backward()
    for mine, their in zip(ours, theirs, strict=True):
        assert_close(mine.grad.cpu(), their.grad, rtol=1e-4, atol=1e-4)
