"""Workflows: functions that can be put down and taken up again."""
