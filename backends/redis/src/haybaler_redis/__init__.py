"""Tool results of a Haystack Agent in Redis or Valkey."""

from haybaler_redis.store import RedisToolResultStore

__all__ = ["RedisToolResultStore"]
