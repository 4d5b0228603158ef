"""Tool results of a Haystack Agent in plain files."""

from haybaler_filesystem.store import FileSystemToolResultStore

__all__ = ["FileSystemToolResultStore"]
