"""Tool results of a Haystack Agent in S3 and in object stores that speak its protocol."""

from haybaler_s3.store import S3ToolResultStore

__all__ = ["S3ToolResultStore"]
