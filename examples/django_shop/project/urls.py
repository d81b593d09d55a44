from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from shop import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders/", views.place_order),
    path("orders/<int:order_id>/", views.show_order),
    path("ops/", include("mainspring.integrations.django.urls")),
]
