-- What is known of this database as a whole.
CREATE TABLE meta (
  key   text NOT NULL PRIMARY KEY,   -- store: the name that this app's rows have in other databases
  value text NOT NULL
);
