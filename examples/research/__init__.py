"""What the demo is made of: its tools, its model, and what watches it."""
