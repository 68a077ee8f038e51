"""Cron expressions in a time zone. Pure: no clock, no Redis."""
