"""A server as a child process: started, waited for, and stopped, that one and no other."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PATIENCE = 20.0  # seconds until a server that has not come up counts as broken


class ServerProcess:
    """
    One server.

    :param command: The command.
    :param folder: Where it runs and writes its log.
    :param is_ready: Whether it answers.
    :param environment: Variables that it gets besides those of the tests.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        is_ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = list(command)
        self._environment = {**os.environ, **(environment or {})}
        self._log = folder / "log"
        self._folder = folder
        self._is_ready = is_ready
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and return when it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + PATIENCE
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{self._command[0]} did not start:\n{self._log.read_text()[-2_000:]}")
            time.sleep(0.01)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def ended(self) -> int:
        """Wait until it has ended by itself, and return its status; minus the number of a signal if that ended it."""
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def log(self) -> str:
        """Return what it has written by now."""
        return self._log.read_text(encoding="utf-8")

    def wait(self) -> None:
        """Return when it has ended by itself."""
        assert self._process is not None
        self._process.wait(PATIENCE)
        self._process = None

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
