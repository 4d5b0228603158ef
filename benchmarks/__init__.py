"""Measurements beside haystack-ai's own classes and the raw operations: `python -m benchmarks --help`."""

import os

# Before Haystack is imported: nothing here reports to anybody.
os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "false")
