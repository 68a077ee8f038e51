"""Interruption between two requests, inside the scripts, and at the lines of workers and promoters."""
