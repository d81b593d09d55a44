"""A small MCP server on standard input and output. Each start of it and each call of its tool is a line in a file."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

ledger = Path(sys.argv[1])


def note(what: str) -> None:
    with ledger.open("a") as file:
        file.write(f"{what}\n")


server = MCPServer("clock", instructions="Ask for a city.")


@server.tool()
def hour(city: str) -> str:
    """The hour in a city."""
    note(f"hour {city}")
    return f"noon in {city}"


if __name__ == "__main__":
    note("start")
    server.run("stdio")
