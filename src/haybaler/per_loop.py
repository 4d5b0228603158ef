"""Objects that belong to one event loop each, such as clients whose connections no other loop may use."""

import asyncio
from collections.abc import Callable
from threading import RLock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class PerLoop(Generic[T]):
    """
    One object for each event loop, made when a loop first asks for it and forgotten once the loop is closed.

    :param factory: Makes the object; called inside the loop that asks.
    :param forget: Told of an object whose loop was closed before it was popped, as soon as anybody notices.
    """

    def __init__(self, factory: Callable[[], T], *, forget: Callable[[T], None] = lambda _: None) -> None:
        self._factory = factory
        self._forget = forget
        self._objects: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()
        self._lock = RLock()

    def get(self) -> T:
        """
        Return the running loop's object.

        :returns: The object, made now if need be.
        """
        loop = asyncio.get_running_loop()
        # Nearly always there is but one loop, which has its object.
        known = self._objects.get(loop) if len(self._objects) == 1 else None
        if known is not None:
            return known
        with self._lock:
            if len(self._objects) > (loop in self._objects):
                self.forget_closed_loops()
            if loop not in self._objects:
                self._objects[loop] = self._factory()
            return self._objects[loop]

    def forget_closed_loops(self) -> None:
        """Forget the objects of loops that have been closed; `get` and `pop` do so, too."""
        # Clients refer to their loop, and a weak key lives as long as its own value refers to it.
        with self._lock:
            for loop in [loop for loop in self._objects if loop.is_closed()]:
                self._forget(self._objects.pop(loop))

    def pop(self) -> T | None:
        """
        Forget the running loop's object.

        :returns: The object, or None if there was none.
        """
        with self._lock:
            self.forget_closed_loops()
            return self._objects.pop(asyncio.get_running_loop(), None)
