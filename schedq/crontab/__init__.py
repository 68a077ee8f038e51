"""What recurs: cron expressions in a time zone, and intervals. Pure: no clock, no Redis."""

from schedq.crontab.crontab import Crontab, Fold, Gap, parse
from schedq.crontab.rhythm import Interval, Rhythm, every, last, slots

__all__ = ["Crontab", "Fold", "Gap", "Interval", "Rhythm", "every", "last", "parse", "slots"]
