"""Wrappers: stores around any store, which compose."""
