"""The dashboard's addresses: `path("ops/", include("mainspring.integrations.django.urls"))`."""

from __future__ import annotations

from django.urls import re_path

from mainspring.integrations.django.dashboard import dashboard

app_name = "mainspring"
urlpatterns = [re_path(r"^(?P<path>.*)$", dashboard, name="dashboard")]
