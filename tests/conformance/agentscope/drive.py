"""Starts and stops the agent under the real runtime, for the recorder and the conformance checks."""

import http.client
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Agent:
    """`agent.py` as a separate process, while the context is open."""

    def __init__(self, framework="agentscope", port=None):
        self.framework = framework
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self.log = tempfile.TemporaryFile()
        command = [sys.executable, str(HERE / "agent.py"), "--port", str(self.port), "--framework", self.framework]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 90
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self._give_up()
            time.sleep(0.1)
        return self

    def _answers(self) -> bool:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def _give_up(self):
        self.__exit__()
        self.log.seek(0)
        sys.stderr.write(self.log.read().decode(errors="replace"))
        raise SystemExit(f"the agent ({self.framework}) did not start")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
