"""The states of a stream, and what takes it from one to another."""

from __future__ import annotations

from svg import arrow, box, picture, text

WIDTH, HEIGHT = 880, 430
BOX_WIDTH, BOX_HEIGHT = 176, 74
IDLE, QUEUED, RUNNING = (24, 130), (352, 130), (680, 130)
PARKED = (352, 322)


def draw() -> str:
    """The picture."""
    parts = [
        box("plain", *IDLE, BOX_WIDTH, BOX_HEIGHT, "Idle", "its queue is empty;", "nothing owns it"),
        box("ours", *QUEUED, BOX_WIDTH, BOX_HEIGHT, "Queued", "in the run queue of the", "engines for its command"),
        box(
            "ours", *RUNNING, BOX_WIDTH, BOX_HEIGHT, "Running", "an engine, or a host that", "waits, runs its commands"
        ),
        box("plain", *PARKED, BOX_WIDTH, BOX_HEIGHT, "Parked", "waits for a fence;", "needs no thread"),
    ]
    middle, bottom = IDLE[1] + BOX_HEIGHT / 2, IDLE[1] + BOX_HEIGHT
    right = IDLE[0] + BOX_WIDTH
    parts.append(arrow((right, middle), (QUEUED[0] - 3, middle)))
    parts.append(text((right + QUEUED[0]) / 2, middle - 26, "a command", "", "middle"))
    parts.append(text((right + QUEUED[0]) / 2, middle - 10, "is submitted", "", "middle"))
    right = QUEUED[0] + BOX_WIDTH
    parts.append(arrow((right, middle - 12), (RUNNING[0] - 3, middle - 12)))
    parts.append(text((right + RUNNING[0]) / 2, middle - 38, "an engine, or a host", "", "middle"))
    parts.append(text((right + RUNNING[0]) / 2, middle - 22, "that waits, takes it", "", "middle"))
    parts.append(arrow((RUNNING[0], middle + 12), (right + 3, middle + 12)))
    parts.append(text((right + RUNNING[0]) / 2, middle + 29, "others' turn", "", "middle"))
    # Over the top: the way back to Idle, and that of brief commands.
    begin, end = RUNNING[0] + 130, IDLE[0] + 40
    parts.append(arrow((begin, RUNNING[1]), (begin, 36), (end, 36), (end, IDLE[1] - 3)))
    parts.append(text(WIDTH / 2, 28, "nothing left to run", "", "middle"))
    begin, end = IDLE[0] + 120, RUNNING[0] + 50
    parts.append(arrow((begin, IDLE[1]), (begin, 84), (end, 84), (end, RUNNING[1] - 3)))
    parts.append(text(WIDTH / 2, 76, "a brief command is submitted: the same thread runs it", "", "middle"))
    # Parked, and back.
    begin, end = RUNNING[0] + 130, PARKED[1] + 50
    parts.append(arrow((begin, bottom), (begin, end), (PARKED[0] + BOX_WIDTH + 3, end)))
    parts.append(text(PARKED[0] + BOX_WIDTH + 16, end + 18, "the next command waits for a fence", ""))
    parts.append(arrow((PARKED[0] + 40, PARKED[1]), (QUEUED[0] + 40, bottom + 3)))
    parts.append(text(PARKED[0] + 30, bottom + 60, "the fence fires", "", "end"))
    begin, end, level = PARKED[0] + 130, RUNNING[0] + 50, bottom + 62
    parts.append(arrow((begin, PARKED[1]), (begin, level), (end, level), (end, bottom + 3)))
    parts.append(text(begin + 12, level + 18, "the fence fires, and a thread", ""))
    parts.append(text(begin + 12, level + 34, "is available to run it", ""))
    for line, content in enumerate(
        ("A stream has at most one owner:", "a run queue, a thread, or the fence", "it is parked on.")
    ):
        parts.append(text(24, PARKED[1] + 30 + 17 * line, content, "faint"))
    return picture("The states of a stream", WIDTH, HEIGHT, parts)
