"""Django: a backend for its tasks, and the management command `schedq_worker`."""
