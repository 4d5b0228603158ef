"""How much memory this process takes; on Linux only, where the system says it exactly."""

from pathlib import Path

_STATUS = Path("/proc/self/status")


def resident() -> int | None:
    """Return how many bytes are in memory now; None where that is not known."""
    return _read("VmRSS:")


def most_resident() -> int | None:
    """Return how many bytes have been in memory at most, since the process began; None where that is not known."""
    return _read("VmHWM:")


def _read(name: str) -> int | None:
    try:
        lines = _STATUS.read_text("ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)
