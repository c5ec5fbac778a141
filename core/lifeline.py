"""A thread that ends a helper process when the process that started it is gone, however it went.

Dask's scheduler and nannies load it at their start (``preload``), and log as the server does; it knows neither Dask nor
torch.
"""

from __future__ import annotations

import os
import threading
import time

from core import logs

PARENT = "DRIFTSCOPE_PARENT"
"""Environment variable with the process id of the server that started this process."""

LOOK_S = 0.5


def dask_setup(_server: object) -> None:
    """Begin to watch; called by Dask once the process is set up."""
    logs.begin()
    threading.Thread(target=_watch, args=(int(os.environ[PARENT]),), name="driftscope-lifeline", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(0)
