from __future__ import annotations

from django.db import models


class Order(models.Model):
    what = models.CharField(max_length=100)
    state = models.CharField(max_length=20, default="placed")

    def __str__(self) -> str:
        return f"{self.what} ({self.state})"


class Mail(models.Model):
    """Stands in for mails that are sent."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    text = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.text
