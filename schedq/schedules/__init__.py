"""Schedules; applications use them through `Queue.schedules`.

`definition` is a schedule with its options, `crontab` finds its slots, `fire` decides what happens to due slots and
carries it out. `register` stores schedules, `control` pauses, resumes, triggers, deletes and backfills them, `records`
reads them.
"""
