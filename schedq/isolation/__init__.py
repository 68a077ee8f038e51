"""Child processes that run attempts one at a time, so that a crash or a timeout ends only that attempt.

The worker claims jobs, renews leases, settles attempts and notifies observers. A child imports the application, enters
its lifespans once, and runs attempts: it converts arguments, makes dependencies, calls middleware, hooks and the
function, and decides the outcome, because `retry_on` and backoff functions need the exception itself. It sends the
outcome as data, which the worker settles as its own. Functions are found by the names of tasks. Only those that async
handlers hand over are pickled; see `handed`.

Worker and child are connected by a socket with JSON messages; `wire` has them. The worker alone measures the timeout.
When it expires, or the lease is lost, the worker ends the child with SIGTERM and then SIGKILL, and gives the slot to
another child at once. SIGTERM writes the stack to a file from within the kernel's signal, so that even code that holds
the interpreter lock leaves its stack, and then raises an exception in the function.

Functions run in the child's main thread, the only one in which Python delivers signals. Its event loop runs in a second
thread. A third reads the socket. A child leads a process group, which is killed with it. The read end of a pipe tells
the group that the worker is gone: the kernel itself ends it then, with SIGKILL where it can be set (Linux) and SIGIO
elsewhere, whatever the child does. On Linux that also holds for a child that is just starting.
"""
