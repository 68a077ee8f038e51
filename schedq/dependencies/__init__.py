"""Dependencies that schedq passes to an application's functions: database pools, sessions, clients.

`declaration` has `Depends` and reads which dependencies a function declares; `providers` creates and cleans them up.
"""
