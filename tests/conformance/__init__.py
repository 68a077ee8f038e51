"""What the engine, and programs that share its queues, take for granted of a server: one fact, one test.

A fact that nothing of ours depends on is marked `xfail(strict=False)`, with the reason; `scripts/test --servers`
names the servers in which it does not hold.
"""
