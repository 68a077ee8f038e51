"""How requests reach Redis: where it is, one line to it, what to send again, and what its errors mean.

The client library's defaults are traps for an engine whose requests must not be repeated unknowingly (automatic
retries of commands that may have run; a 5 s socket timeout under a longer block), so these lines use its connections
only: retries off, timeouts said, RESP 2, pipelines that are no transactions.
"""
