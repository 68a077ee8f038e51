"""Crash points: between two requests, inside the scripts, at the lines of workers and promoters."""
