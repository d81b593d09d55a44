"""What the shop does in the background: a task, and a workflow that takes days. `manage.py mainspring worker` finds this module."""

from __future__ import annotations

from mainspring import Retry, run
from mainspring.integrations.django import app
from shop.models import Mail, Order

try:
    from django.tasks import task
except ModuleNotFoundError:
    from django_tasks import task

app.queue("mail", concurrency=5, retry=Retry(5, first="10s"))


@task(queue_name="mail")
def send_mail(order_id: int, text: str) -> int:
    """A task of Django's: executed at least once, retried by its queue."""
    return Mail.objects.create(order_id=order_id, text=text).pk


@app.atomic
def mark(order_id: int, state: str) -> str:
    """The order's new state, the mail about it and the record of the step are one commit: this happens exactly once."""
    order = Order.objects.select_for_update().get(pk=order_id)
    order.state = state
    order.save()
    send_mail.enqueue(order_id, f"your {order.what} is {state}")
    return state


@app.workflow
async def fulfil(order_id: int) -> str:
    """Survives restarts and deploys between any two of its lines."""
    await mark.aio(order_id, "paid")
    await run.sleep("2d")
    return await mark.aio(order_id, "shipped")
