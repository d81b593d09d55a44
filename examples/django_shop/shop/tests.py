"""`python manage.py test`: two days take no time."""

from __future__ import annotations

from mainspring.integrations.django.testing import WorldTestCase
from shop.models import Mail, Order


class OrderTests(WorldTestCase):
    def test_an_order_is_shipped_after_two_days(self) -> None:
        self.client.post("/orders/", {"what": "clock"})
        self.world.advance("1d")
        self.assertEqual(Order.objects.get().state, "paid")
        self.world.advance("1d")
        self.assertEqual(Order.objects.get().state, "shipped")
        self.assertEqual(
            list(Mail.objects.order_by("pk").values_list("text", flat=True)),
            ["your clock is paid", "your clock is shipped"],
        )

    def test_a_request_that_fails_leaves_neither_an_order_nor_a_workflow(self) -> None:
        with self.assertRaises(ValueError):
            self.client.post("/orders/", {"what": ""})
        self.assertEqual(Order.objects.count(), 0)
        self.assertEqual(self.world.app.runs.list.sync().runs, [])
