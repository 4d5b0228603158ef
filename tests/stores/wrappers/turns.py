"""Threads that take turns at a store, in an order that a test chooses: every run is one interleaving, every time."""

import threading
from collections.abc import Callable
from typing import Any

from haybaler import InMemoryToolResultStore


class Crash(BaseException):
    """A process ends in the middle of what it is doing."""


class Turns:
    """
    Lets one of several threads go on at a time, from one operation of the store to the next.

    :param choose: Chooses among the names of those who wait for their turn.
    """

    def __init__(self, choose: Callable[[list[str]], str]) -> None:
        self._choose = choose
        self._changed = threading.Condition()
        self._actors: dict[int, str] = {}
        self._waiting: set[str] = set()
        self._alive: set[str] = set()
        self._turn: str | None = None
        self.crashes: dict[str, int] = {}
        self.taken: dict[str, int] = {}

    def take(self) -> None:
        """Wait for the turn of the running thread. Threads that take no part go on at once."""
        name = self._actors.get(threading.get_ident())
        if name is None:
            return
        with self._changed:
            self._waiting.add(name)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == name)
            self._turn = None
            self._waiting.discard(name)
            self.taken[name] = self.taken.get(name, 0) + 1
        if self.taken[name] == self.crashes.get(name):
            raise Crash

    def run(self, actors: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        """
        Run some functions, each in a thread.

        :param actors: The functions by name.
        :returns: What each returned, or raised.
        """
        results: dict[str, Any] = {}
        self._alive = set(actors)
        threads = [threading.Thread(target=self._act, args=(name, actors[name], results)) for name in actors]
        for thread in threads:
            thread.start()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._turn is None and self._waiting == self._alive)
                if not self._alive:
                    break
                self._turn = self._choose(sorted(self._waiting))
                self._changed.notify_all()
        for thread in threads:
            thread.join()
        return results

    def _act(self, name: str, function: Callable[[], Any], results: dict[str, Any]) -> None:
        self._actors[threading.get_ident()] = name
        try:
            results[name] = function()
        except BaseException as error:  # noqa: BLE001 - for the test to look at
            results[name] = error
        with self._changed:
            self._alive.discard(name)
            del self._actors[threading.get_ident()]
            self._changed.notify_all()


class TurnsStore(InMemoryToolResultStore):
    """A store in memory, each of whose operations waits for its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns(lambda names: names[0])

    @property
    def contents(self) -> list[Any]:
        """What the store holds."""
        return [held.content for held in self._entries.values()]

    def _put(self, path: str, content: Any) -> None:
        self.turns.take()
        super()._put(path, content)

    def _get(self, path: str) -> Any:
        self.turns.take()
        return super()._get(path)

    def _remove(self, path: str) -> None:
        self.turns.take()
        super()._remove(path)
