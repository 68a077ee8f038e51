"""Operator actions on a queue of a million jobs: `scripts/blocktime --only-operators`."""
