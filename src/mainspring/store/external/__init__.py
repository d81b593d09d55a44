"""Users' transactions: on borrowed connections, on users' own connections, and in other databases."""
