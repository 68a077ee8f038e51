"""What functions of an application are given besides their job's arguments: database pools, sessions, clients.

`declaration` has `Depends` and reads which dependencies a function declares, `providers` enters and leaves them.
"""
