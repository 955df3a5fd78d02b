"""The path of an add from Python to the kernel and back."""

from __future__ import annotations

from svg import arrow, box, picture, rectangle, text

WIDTH, BOX, STEP, TOP = 880, 54, 68, 64
LEFT, LEFT_WIDTH = 16, 390
QUEUE, QUEUE_WIDTH = 452, 92
RIGHT, RIGHT_WIDTH = 590, 274

Box = tuple[str, str, str]  # class, function, action

CALLER: list[Box] = [
    ("torch", "a + b", "Tensor.__add__: reads the arguments, releases the GIL"),
    ("torch", "at::_ops::add_Tensor::call", "the dispatcher: highest key first"),
    ("torch", "AutogradPrivateUse1", "records AddBackward0 if a gradient is needed"),
    ("ours", "PrivateUse1: Structured<...>::functional", "ArgumentWriter writes arguments and signature"),
    ("ours", "PlanCache::find", "first call: meta function and probe make the plan"),
    ("ours", "make_result", "a block of the current stream's memory, without waiting"),
    ("ours", "ops::launch, backend::submit, Stream::enqueue", "copies the command into the queue"),
    ("torch", "c", "returned; Python continues"),
    ("ours", "c.item(): wait_for_device", "Stream::synchronize runs remaining commands, then reads"),
]
RUNNER: list[Box] = [
    ("ours", "RunSlice::step", "takes the next record"),
    ("ours", "CleanState", "no modes, no autograd, no autocast"),
    ("ours", "OpKernel::run_body", "tensors over the aperture"),
    ("torch", "at::cpu::add_outf", "the CPU's kernel"),
    ("ours", "head + 1", "fences fire, waiting threads wake"),
]
FIRST_OF_RUNNER = 3  # the step of the caller beside which the runner's steps begin
SUBMIT, WAIT = 6, 8


def step(x: float, y: float, width: float, number: int, content: Box) -> str:
    """A numbered step."""
    kind, name, does = content
    return box(kind, x, y, width, BOX, f"{number} {name}", does)


def draw() -> str:
    """The picture."""
    middle = BOX / 2
    y_of = [TOP + STEP * step for step in range(len(CALLER))]
    y_runner = [TOP + STEP * (FIRST_OF_RUNNER + step) for step in range(len(RUNNER))]
    parts = []
    for x, title in ((LEFT, "the calling thread"), (QUEUE, "the stream"), (RIGHT, "an engine, or a waiting host")):
        parts.append(text(x, TOP - 18, title, "head"))
    for number, (y, content) in enumerate(zip(y_of, CALLER, strict=True)):
        shown = number + 1 if number < WAIT else number + 1 + len(RUNNER)
        parts.append(step(LEFT, y, LEFT_WIDTH, shown, content))
        if number:
            parts.append(arrow((LEFT + LEFT_WIDTH / 2, y - STEP + BOX), (LEFT + LEFT_WIDTH / 2, y - 3)))
    for number, (y, content) in enumerate(zip(y_runner, RUNNER, strict=True)):
        parts.append(step(RIGHT, y, RIGHT_WIDTH, WAIT + 1 + number, content))
        if number:
            parts.append(arrow((RIGHT + RIGHT_WIDTH / 2, y - STEP + BOX), (RIGHT + RIGHT_WIDTH / 2, y - 3)))
    first, last = y_runner[0] + 8, y_of[SUBMIT] + middle + 18
    cells = 6
    height = (last - first) / cells
    for cell in range(cells):
        top = first + height * cell
        parts.append(rectangle("plain", QUEUE, top, QUEUE_WIDTH, height - 5))
    label = first + height * (cells - 1) + height / 2 + 2
    parts.append(text(QUEUE + 7, label, "add.Tensor", "name"))
    # Into the queue, out of its other end, and back to the waiting host.
    parts.append(arrow((LEFT + LEFT_WIDTH, y_of[SUBMIT] + middle), (QUEUE - 3, y_of[SUBMIT] + middle)))
    parts.append(arrow((QUEUE + QUEUE_WIDTH, y_runner[0] + middle), (RIGHT - 3, y_runner[0] + middle)))
    end, wait = RIGHT + RIGHT_WIDTH / 2, y_of[WAIT] + middle
    parts.append(arrow((end, y_runner[-1] + BOX), (end, wait), (LEFT + LEFT_WIDTH + 3, wait)))
    total = y_of[-1] + BOX + 44
    legend = total - 26
    parts += [rectangle("torch", LEFT, legend, 14, 14), text(LEFT + 22, legend + 12, "PyTorch")]
    parts += [rectangle("ours", LEFT + 96, legend, 14, 14), text(LEFT + 118, legend + 12, "torch_openreg")]
    return picture("The path of an add", WIDTH, total, parts)
