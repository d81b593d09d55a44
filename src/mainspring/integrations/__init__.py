"""Other libraries and services: FastAPI, OpenTelemetry, webhooks and check-ins. Each module needs the package it is for."""
