"""Places of each backend; one server of a kind serves all modules."""

from tests.services.places import place, place_in_files, place_in_memory, place_in_redis, place_in_s3
from tests.stores.conftest import prefix, rclone, s3_environment, valkey

__all__ = [
    "place",
    "place_in_files",
    "place_in_memory",
    "place_in_redis",
    "place_in_s3",
    "prefix",
    "rclone",
    "s3_environment",
    "valkey",
]
