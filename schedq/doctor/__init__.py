"""Diagnoses a Redis server and its queues: what is wrong, what that means, and what to do about it.

Each subject has one module, which reads facts with bounded requests and judges them by a table of checks.
`examination` runs all of them; `roles` has the access rules for a server's users.
"""
