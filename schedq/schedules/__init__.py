"""Everything about schedules; applications use it through `Queue.schedules`.

`definition` is a schedule with its options, `crontab` finds its slots, `plan` decides what happens to due slots and
`fire` carries that out. `register` writes schedules, `control` pauses, resumes, triggers, deletes and backfills them,
`records` reads them.
"""
