"""How requests reach Redis: its address, connections to it, what to send again, and what its errors mean.

schedq uses redis-py's connections but not its client, whose defaults are unsafe for a job engine: it repeats commands
that may already have been executed, and its socket timeout of 5 s is shorter than a blocking command may take. schedq
turns retries off, sets every timeout, speaks RESP 2, and sends pipelines without a transaction. Start reading in
`client`.
"""
