"""A Django app for tests of the integration."""
