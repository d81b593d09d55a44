"""Integrations: FastAPI, Django, OpenTelemetry, SQLAlchemy, Pydantic AI, webhooks. Each module needs the package it is for."""
