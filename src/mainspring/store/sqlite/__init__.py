"""The store on a SQLite file: one process or several on one machine."""
