"""The shop's commands: `python manage.py migrate`, then `runserver`, and `mainspring worker` beside it (or `mainspring dev`)."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
