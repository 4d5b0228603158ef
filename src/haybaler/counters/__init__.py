"""Measuring conversations in tokens."""
