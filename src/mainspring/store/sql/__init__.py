"""SQL by table, written once for both databases. `dialect.py` renders a statement for each."""
