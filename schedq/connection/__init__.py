"""How requests reach Redis: where it is, connections to it, what to send again, and what its errors mean.

The client library's defaults are traps for an engine whose requests must not be repeated unknowingly (automatic
retries of commands that may have run; a 5 s socket timeout under a longer block), so schedq uses its connections
only: retries off, explicit timeouts, RESP 2, pipelines that are no transactions. Start reading in `client`.
"""
