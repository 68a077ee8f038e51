"""Compares the CPU time of a plain job between two versions of the package; see README.md."""
