"""A queue of a million jobs, and an operator before it: `scripts/blocktime --only-operators`."""
