"""Benchmarks of schedq, of the server's own limits, and of other engines in the same run: `scripts/bench`."""
