from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.models import Mail, Order
from shop.tasks import fulfil

if TYPE_CHECKING:
    from django.http import HttpRequest


@csrf_exempt
@require_POST
def place_order(request: HttpRequest) -> JsonResponse:
    """The order and its workflow are one commit: ATOMIC_REQUESTS opens the transaction, and `start` joins it."""
    what = request.POST.get("what", "")
    order = Order.objects.create(what=what)
    fulfil.options(id=f"order-{order.pk}").start.sync(order.pk)
    if not what:
        raise ValueError("an order needs something: neither it nor its workflow is there now")
    return JsonResponse({"order": order.pk})


def show_order(request: HttpRequest, order_id: int) -> JsonResponse:
    order = get_object_or_404(Order, pk=order_id)
    mails = Mail.objects.filter(order=order).order_by("pk").values_list("text", flat=True)
    return JsonResponse({"state": order.state, "mails": list(mails)})
