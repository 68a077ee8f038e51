"""Builds the documentation site from the handbook and the docstrings."""
