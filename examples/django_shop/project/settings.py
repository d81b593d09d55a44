"""Settings of the shop. SQLite in this folder, or the PostgreSQL that SHOP_PG_HOST and SHOP_PG_NAME name."""

from __future__ import annotations

import os
from pathlib import Path

import django

BASE_DIR = Path(__file__).parents[1]
SECRET_KEY = "an example, not a secret"  # noqa: S105
DEBUG = True
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"
STATIC_URL = "/static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    *(["django_tasks"] if django.VERSION < (6, 0) else []),
    "mainspring.integrations.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

if os.environ.get("SHOP_PG_NAME"):
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ["SHOP_PG_NAME"],
            "HOST": os.environ.get("SHOP_PG_HOST", ""),
            "USER": os.environ.get("SHOP_PG_USER", "postgres"),
            "ATOMIC_REQUESTS": True,
            "CONN_MAX_AGE": 60,
            "CONN_HEALTH_CHECKS": True,
        }
    }
else:
    DATABASES = {
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ.get("SHOP_DB", str(BASE_DIR / "shop.sqlite3")),
            "ATOMIC_REQUESTS": True,
            "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 30},
            "TEST": {"NAME": os.environ.get("SHOP_TEST_DB", str(BASE_DIR / "test.sqlite3"))},
        }
    }

TASKS = {"default": {"BACKEND": "mainspring.integrations.django.Backend", "QUEUES": ["default", "mail"]}}
MAINSPRING = {"NAME": "shop", "STAFF_ROLE": "operator"}
