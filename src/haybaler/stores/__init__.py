"""Stores for tool results: the protocol, the base class for authors, and the store in memory."""
