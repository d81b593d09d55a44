from __future__ import annotations

from typing import ClassVar

from django.db import models


class Entry(models.Model):
    """A line in a ledger."""

    text: models.CharField[str, str] = models.CharField(max_length=100)
    amount: models.IntegerField[int, int] = models.IntegerField(default=0)

    objects: ClassVar[models.Manager[Entry]]

    class Meta:
        app_label = "bank"

    def __str__(self) -> str:
        return f"{self.text}: {self.amount}"
