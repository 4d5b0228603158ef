"""Rewriting a conversation into a smaller one."""
