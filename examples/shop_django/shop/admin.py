"""The orders in the admin, next to the queues, for which schedq brings a page."""

from django.contrib import admin

from shop.models import Order


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    """The list of orders."""

    list_display = ("number", "email", "is_paid")
