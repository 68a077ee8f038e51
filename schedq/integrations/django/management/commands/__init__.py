"""The commands of `manage.py`, one module for each."""
