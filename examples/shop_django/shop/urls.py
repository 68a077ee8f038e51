"""Views that enqueue: in the transaction of an order, from an async view, and with a delay."""

from datetime import timedelta

from django.contrib import admin
from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.models import Order
from shop.tasks import TaskResultDoesNotExist, charge, notify, send_receipt


@csrf_exempt  # an API for programs that send no cookie
@require_POST
def order(request: HttpRequest, number: int) -> JsonResponse:
    """Store the order, and with it its receipt now and a reminder in a second: all of them or none."""
    to = request.POST.get("to", "ada@example.org")
    with transaction.atomic():
        Order.objects.update_or_create(number=number, defaults={"email": to})
        receipt = send_receipt.enqueue(number, to=to)
        at = timezone.now() + timedelta(seconds=1)
        reminder = send_receipt.using(run_after=at).enqueue(number, to="reminder@example.org")
        if to.endswith("@example.com"):
            raise ValueError("we don't deliver there")  # nothing is stored or sent
    return JsonResponse({"receipt": receipt.id, "reminder": reminder.id}, status=202)


@csrf_exempt
@require_POST
async def tell(request: HttpRequest, number: int) -> JsonResponse:
    """Enqueue from an async view."""
    told = await notify.aenqueue(number)
    paid = await charge.aenqueue(number, failures=int(request.POST.get("failures", "0")))
    return JsonResponse({"told": told.id, "paid": paid.id}, status=202)


def job(_: HttpRequest, result_id: str) -> JsonResponse:
    """The state of a job."""
    try:
        result = send_receipt.get_backend().get_result(result_id)
    except TaskResultDoesNotExist:
        return JsonResponse({"error": f"no job {result_id}"}, status=404)
    facts = {"task": result.task.name, "status": result.status, "attempts": result.attempts}
    if result.is_finished:
        facts["errors"] = [error.exception_class_path for error in result.errors]
    if result.status == "SUCCESSFUL":
        facts["result"] = result.return_value
    return JsonResponse(facts)


urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/<int:number>", order),
    path("orders/<int:number>/tell", tell),
    path("jobs/<str:result_id>", job),
]
