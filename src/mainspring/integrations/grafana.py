"""A Grafana dashboard of the figures in `/metrics`.

    python -m mainspring.integrations.grafana > mainspring.json        # then import it in Grafana, or provision it

Every process that serves `/metrics` reads the same database, so panels take the largest of their answers, not their sum.
"""

from __future__ import annotations

import json
import sys
from importlib import resources
from typing import Any


def dashboard() -> dict[str, Any]:
    """Return the dashboard in Grafana's JSON format."""
    found: dict[str, Any] = json.loads(
        resources.files("mainspring.integrations").joinpath("grafana.json").read_text("utf-8")
    )
    return found


if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=1)
    sys.stdout.write("\n")
