"""What is wrong with a Redis and its queues, what that means, and what to do about it.

Each subject has one module: it reads facts by bounded requests, and a table of checks says what they mean.
`examination` goes through the subjects; `roles` has the access rules that a server can be given.
"""
