"""Real servers for tests, on free loopback ports; each is stopped by whoever started it, and no other one is."""
