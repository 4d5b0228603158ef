"""The properties of `tests/hostile/test_fuzz.py`, fed for as long as one likes: `make fuzz MINUTES=30`."""
