"""Keeps a Haystack Agent inside its model's context window, asynchronously."""

from haybaler.compactors.offload import ToolResultOffloadCompactor
from haybaler.compactors.protocol import Compactor
from haybaler.compactors.pruning import ToolResultPruningCompactor
from haybaler.compactors.sliding_window import SlidingWindowCompactor
from haybaler.counters.approximate import ApproximateTokenCounter
from haybaler.counters.image_rules import ImageRule
from haybaler.counters.openai import OpenAITokenCounter
from haybaler.counters.protocol import TokenCounter
from haybaler.counters.tiktoken import TiktokenCounter
from haybaler.errors import (
    CorruptEntryError,
    HaybalerError,
    InvalidReferenceError,
    ReferenceNotFoundError,
    ScopeFullError,
    StoreError,
    StoreUnavailableError,
)
from haybaler.hooks.compaction import CompactionHook
from haybaler.hooks.context import RESULT_STORE_CONTEXT_KEY
from haybaler.hooks.offload import ToolResultOffloadHook
from haybaler.hooks.write_behind import WriteBehindHook
from haybaler.policies import AlwaysOffload, NeverOffload, OffloadOverChars, OffloadOverTokens, OffloadPolicy
from haybaler.stores.base import BaseToolResultStore
from haybaler.stores.group_commit import GroupCommit
from haybaler.stores.inventory import StoredEntry, SweepReport
from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.stores.protocol import StoreEntry, ToolResultStore
from haybaler.stores.registry import store_from_url
from haybaler.stores.wrappers.circuit_breaker import CircuitBreakerStore
from haybaler.stores.wrappers.compressed import CompressedStore
from haybaler.stores.wrappers.content_addressed import ContentAddressedStore
from haybaler.stores.wrappers.encrypted import EncryptedStore
from haybaler.stores.wrappers.fallback import FallbackStore
from haybaler.stores.wrappers.retrying import RetryingStore
from haybaler.stores.wrappers.tiered import TieredStore
from haybaler.tools import ToolResultToolset

__all__ = [
    "RESULT_STORE_CONTEXT_KEY",
    "AlwaysOffload",
    "ApproximateTokenCounter",
    "BaseToolResultStore",
    "CircuitBreakerStore",
    "CompactionHook",
    "Compactor",
    "CompressedStore",
    "ContentAddressedStore",
    "CorruptEntryError",
    "EncryptedStore",
    "FallbackStore",
    "GroupCommit",
    "HaybalerError",
    "ImageRule",
    "InMemoryToolResultStore",
    "InvalidReferenceError",
    "NeverOffload",
    "OffloadOverChars",
    "OffloadOverTokens",
    "OffloadPolicy",
    "OpenAITokenCounter",
    "ReferenceNotFoundError",
    "RetryingStore",
    "ScopeFullError",
    "SlidingWindowCompactor",
    "StoreEntry",
    "StoreError",
    "StoreUnavailableError",
    "StoredEntry",
    "SweepReport",
    "TieredStore",
    "TiktokenCounter",
    "TokenCounter",
    "ToolResultOffloadCompactor",
    "ToolResultOffloadHook",
    "ToolResultPruningCompactor",
    "ToolResultStore",
    "ToolResultToolset",
    "WriteBehindHook",
    "store_from_url",
]
