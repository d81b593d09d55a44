-- What a run is told: one row per message, numbered in the order in which they were committed.
CREATE TABLE messages (
  run      TEXT NOT NULL,                   -- the run it is for
  number   INTEGER NOT NULL,                -- from 0, in the order of commits
  kind     TEXT NOT NULL CHECK (kind IN ('message', 'question')),
  topic    TEXT NOT NULL,                   -- or the name of the question
  body     TEXT NOT NULL,                   -- JSON
  key      TEXT,                            -- a second one with this key is not stored
  sender   TEXT,                            -- the run that sent it
  sent     INTEGER NOT NULL,
  received INTEGER,                         -- when the run received it
  position TEXT,                            -- the operation that received it
  answer   TEXT,                            -- JSON of the answer to a question
  error    TEXT,                            -- JSON record of the exception raised instead
  answered INTEGER,
  PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX messages_key ON messages (run, key) WHERE key IS NOT NULL;
CREATE INDEX messages_unread ON messages (run, kind, topic, number) WHERE received IS NULL;

-- Named values of a run that anybody can read; the last of each key counts.
CREATE TABLE events (
  run      TEXT NOT NULL,
  key      TEXT NOT NULL,
  number   INTEGER NOT NULL,                -- from 0
  value    TEXT,                            -- JSON
  said     INTEGER NOT NULL,
  position TEXT,                            -- the operation that said it
  PRIMARY KEY (run, key, number)
) WITHOUT ROWID;

-- Named lists of values of a run that anybody can read.
CREATE TABLE streams (
  run      TEXT NOT NULL,
  key      TEXT NOT NULL,
  number   INTEGER NOT NULL,                -- the offset, from 0
  value    TEXT,                            -- JSON; NULL: the stream is closed
  said     INTEGER NOT NULL,
  position TEXT,                            -- the operation that said it
  PRIMARY KEY (run, key, number)
) WITHOUT ROWID;

-- What a run waits for, without reading all that it has done.
CREATE INDEX steps_unfinished ON steps (run) WHERE completed IS NULL;
