"""The table of jobs that wait for a relay, with the columns that `schedq.integrations.outbox` reads."""

from __future__ import annotations

from django.db import models

from schedq.integrations.outbox import MOST_KEY


class OutboxRow(models.Model):
    """A job that a transaction has written. Relays send it and mark it as sent."""

    seq = models.BigAutoField(primary_key=True)
    job_id = models.CharField(max_length=64)
    queue = models.CharField(max_length=64)
    order_key = models.CharField(max_length=MOST_KEY, null=True)
    payload = models.TextField()
    options = models.TextField()
    created_at_ms = models.BigIntegerField()
    started_at_ms = models.BigIntegerField(null=True)
    sent_at_ms = models.BigIntegerField(null=True)
    held = models.TextField(null=True)

    class Meta:
        """Without permissions: only the application and its relays write rows."""

        db_table = "schedq_outbox"
        default_permissions = ()
        indexes = (models.Index(fields=["sent_at_ms", "seq"], name="schedq_outbox_unsent"),)
