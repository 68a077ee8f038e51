"""Real processes, real kills and a real network between them: `scripts/chaos`.

The reference is what handlers append to local files, not what Redis reports.
"""
