"""Behaviors of Redis that schedq relies on and one script can't test: several clients, time, full memory, replicas.

What one script can test is a probe of `schedq doctor` (schedq/doctor/probes.py), which tests/doctor runs. What a
command does to a list, a hash or a sorted set is shown by the tests of the transitions that send it.
"""
