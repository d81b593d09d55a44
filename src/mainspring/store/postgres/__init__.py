"""The store on PostgreSQL: a fleet of processes on any number of machines. Nothing outside this package imports psycopg."""

from mainspring.errors import MissingExtra

try:
    import psycopg as _psycopg
except ImportError as error:
    raise MissingExtra("PostgreSQL needs psycopg 3: pip install 'mainspring[postgres]'") from error

del _psycopg
