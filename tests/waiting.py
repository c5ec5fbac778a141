"""Waiting for what other threads and processes do: never longer than is said, and never on a clock alone."""

import time


def until(condition, seconds, pause=0.02):
    """Return the first true value of `condition`, which must come within so many seconds."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(pause)
    return value
