"""The store of the examples obeys every law, as the example says."""

from examples.own_store import TestSQLiteToolResultStore

__all__ = ["TestSQLiteToolResultStore"]
