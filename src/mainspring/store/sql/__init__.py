"""SQL by table, written once for both databases; `dialect.py` says how a statement is rendered for each."""
