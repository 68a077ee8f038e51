"""What workflows and batches cost: steps, waits, children, and very many of them; see `__main__.py`."""
