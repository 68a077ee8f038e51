"""What an operator wants to know of a Redis and its queues: what is wrong, what that means, what to do about it.

One room per subject: it gathers facts (a flow of bounded requests) and judges them (pure). `examination` asks the
rooms one after the other; `roles` has the access rules that a server can be given.
"""
