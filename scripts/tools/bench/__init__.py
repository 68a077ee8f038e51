"""What schedq costs, what the server can do, and what other engines cost in the same run: `scripts/bench`."""
