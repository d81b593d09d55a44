"""Specs described and checked in words."""
