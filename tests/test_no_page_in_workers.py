"""A page's code runs in the web server and nowhere else, not even in a worker started in place of a dead one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import waiting
from streamlit.proto.BackMsg_pb2 import BackMsg
from websockets.sync.client import connect

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 60.0

APP = """
from contextlib import asynccontextmanager
import streamlit as st
from core import service

@asynccontextmanager
async def lifespan(app):
    service.start()
    try:
        yield
    finally:
        service.stop()

app = st.App("page.py", lifespan=lifespan)
"""

PAGE = """
import json, os, sys
from pathlib import Path
with open(Path(__file__).with_name("marks"), "a") as marks:
    marks.write(f"{os.getpid()}\\n")
from core import service
from core.experiment import parse
run_ids = service.ensure([parse({"model": {"n_layers": 2}, "protocol": {"seed": len(Path("marks").read_text())}})])
run = service.wait(run_ids, 30)[0]
Path("seen.part").write_text(json.dumps({
    "server": os.getpid(), "main": sys.modules["__main__"].__file__, "torch": "torch" in sys.modules,
    "status": run.status, "pids": service.worker_pids()}))
Path("seen.part").rename("seen")
"""


until = partial(waiting.until, seconds=DEADLINE_S)


def answers(address):
    try:
        urllib.request.urlopen(address, timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def streamlit(folder):
    """Run ``streamlit run app.py`` in `folder`; yield its port and process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}", "--server.headless=true",
               "--server.address=127.0.0.1", "--server.fileWatcherType=none", "--browser.gatherUsageStats=false",
               "--browser.serverAddress=localhost"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "DRIFTSCOPE_STORE": f"sqlite:///{folder / 'runs.db'}"}
    process = subprocess.Popen(command, cwd=folder, env=environment)
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/_stcore/health"))
        yield port, process
    finally:
        process.terminate()
        process.wait(timeout=20)


def visit(port, folder):
    """Open the page as a browser does, wait until its script has ended, and return what it saw."""
    (folder / "seen").unlink(missing_ok=True)
    with connect(f"ws://127.0.0.1:{port}/_stcore/stream", subprotocols=["streamlit"]) as socket_:
        message = BackMsg()
        message.rerun_script.query_string = ""
        socket_.send(message.SerializeToString())
        until((folder / "seen").exists)
    return json.loads((folder / "seen").read_text())


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "page.py").write_text(PAGE)
    return tmp_path


def test_a_worker_that_comes_back_does_not_run_the_page(folder):
    with streamlit(folder) as (port, process):
        first = visit(port, folder)
        assert first["status"] == "done"
        assert Path(first["main"]).name == "page.py"  # the trap is set: a multiprocessing child would run this
        os.kill(first["pids"]["probe"][0], signal.SIGKILL)
        second = visit(port, folder)
        assert second["status"] == "done"
        assert second["pids"]["probe"] != first["pids"]["probe"]
        assert not second["torch"]
        assert set((folder / "marks").read_text().split()) == {str(second["server"])}
        begun = time.monotonic()
        process.terminate()
        process.wait(timeout=20)
        assert time.monotonic() - begun < 5.0
