"""Faults of servers, disks and processes in the middle of Agents' runs: `python -m tests.faults.injection`."""
