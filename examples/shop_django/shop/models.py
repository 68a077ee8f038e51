"""What the shop stores."""

from django.db import models


class Order(models.Model):
    """An order, paid by a task."""

    number = models.PositiveIntegerField(primary_key=True)
    email = models.EmailField()
    is_paid = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"order {self.number}"
