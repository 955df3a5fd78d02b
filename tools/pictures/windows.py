"""The two windows: where device pointers lie, and where the memory is."""

from __future__ import annotations

from svg import arrow, picture, rectangle, text

WIDTH, HEIGHT = 880, 372
LEFT, RANGE = 24, 200  # a device's range of addresses, in pixels
APERTURES = WIDTH - LEFT - 2 * RANGE
BAR, BAR_HEIGHT = 150, 54


def draw() -> str:
    """The picture."""
    parts = [
        text(LEFT, 34, "windows: what data_ptr() returns", "head"),
        text(LEFT, 54, "addresses without access and without memory"),
        text(APERTURES, 34, "apertures: where the memory is", "head"),
        text(APERTURES, 54, "what kernels use, after adding the distance"),
    ]
    for device in range(2):
        x = LEFT + RANGE * device
        parts.append(rectangle("plain", x, BAR, RANGE, BAR_HEIGHT))
        parts.append(text(x + RANGE / 2, BAR + 76, f"openreg:{device}", "name", "middle"))
        x = APERTURES + RANGE * device
        parts.append(rectangle("plain", x, BAR, RANGE, BAR_HEIGHT))
        parts.append(text(x + RANGE / 2, BAR + 76, f"openreg:{device}", "name", "middle"))
        # The segments: committed memory, with room to grow.
        for begin, width in ((10, 62), (96, 30)) if device == 0 else ((10, 40),):
            parts.append(rectangle("ours", x + begin, BAR + 5, width, BAR_HEIGHT - 10))
    tensor, memory = LEFT + 46, APERTURES + 46
    for x in (tensor, memory):
        parts.append(f'<rect class="torch" x="{x - 8}" y="{BAR + 14}" width="16" height="{BAR_HEIGHT - 28}"/>')
    parts.append(arrow((tensor, BAR + 12), (tensor, 104), (memory, 104), (memory, BAR + 10)))
    parts.append(text((tensor + memory) / 2, 94, "+ distance, a constant", "name", "middle"))
    host = 268
    parts.append(rectangle("bad", LEFT, host, 300, 74))
    parts.append(text(LEFT + 10, host + 22, "code on the host follows the pointer", "name"))
    parts.append(text(LEFT + 10, host + 41, "it faults at the access: a line on stderr,"))
    parts.append(text(LEFT + 10, host + 57, "then SIGSEGV"))
    parts.append(arrow((tensor, host), (tensor, BAR + BAR_HEIGHT + 3)))
    parts.append(rectangle("ours", APERTURES, host, 2 * RANGE, 74))
    parts.append(text(APERTURES + 10, host + 22, "segments of the caching allocator", "name"))
    parts.append(text(APERTURES + 10, host + 41, "committed in multiples of 2 MiB. A range has eight times"))
    parts.append(text(APERTURES + 10, host + 57, "the device's memory: segments lie apart and grow in place"))
    parts.append(arrow((memory, host), (memory, BAR + BAR_HEIGHT - 2)))
    parts.append(arrow((LEFT + 350, host + 37), (LEFT + 400, host + 37)))
    parts.append(text(LEFT + 402, host + 24, "addresses grow", "faint", "end"))
    return picture("The two windows", WIDTH, HEIGHT, parts)
