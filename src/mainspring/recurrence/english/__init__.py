"""Describe specs in English, and warn about them."""
