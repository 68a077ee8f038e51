"""Create the table."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """The table and its index."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.CharField(max_length=64)),
                ("queue", models.CharField(max_length=64)),
                ("order_key", models.CharField(max_length=200, null=True)),
                ("payload", models.TextField()),
                ("options", models.TextField()),
                ("created_at_ms", models.BigIntegerField()),
                ("started_at_ms", models.BigIntegerField(null=True)),
                ("sent_at_ms", models.BigIntegerField(null=True)),
                ("held", models.TextField(null=True)),
            ],
            options={
                "db_table": "schedq_outbox",
                "default_permissions": (),
                "indexes": [models.Index(fields=["sent_at_ms", "seq"], name="schedq_outbox_unsent")],
            },
        ),
    )
