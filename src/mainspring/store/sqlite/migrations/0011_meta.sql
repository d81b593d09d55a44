-- What is known of this database as a whole.
CREATE TABLE meta (
  key   TEXT NOT NULL PRIMARY KEY,   -- store: the name that this app's rows have in other databases
  value TEXT NOT NULL
) WITHOUT ROWID;
