"""Real processes, real kills, a real network in between: `scripts/chaos`.

The ground truth is what handlers append to local files, whatever Redis says of it.
"""
