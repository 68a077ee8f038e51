"""Measures how long 20 tests of an application take, which are written as users write them; see `__main__.py`."""
