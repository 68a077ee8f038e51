"""Create the table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """The table of orders."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("number", models.PositiveIntegerField(primary_key=True, serialize=False)),
                ("email", models.EmailField(max_length=254)),
                ("is_paid", models.BooleanField(default=False)),
            ],
        ),
    )
