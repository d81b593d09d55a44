-- What a run is told: one row per message, numbered in the order in which they were committed.
CREATE TABLE messages (
  run      text COLLATE "C" NOT NULL,                  -- the run it is for
  number   bigint NOT NULL,                            -- from 0, in the order of commits
  kind     text NOT NULL CHECK (kind IN ('message', 'question')),
  topic    text COLLATE "C" NOT NULL,                  -- or the name of the question
  body     json NOT NULL,                              -- JSON
  key      text COLLATE "C",                           -- a second one with this key is not stored
  sender   text COLLATE "C",                           -- the run that sent it
  sent     bigint NOT NULL,
  received bigint,                                     -- when the run received it
  position text COLLATE "C",                           -- the operation that received it
  answer   json,                                       -- JSON of the answer to a question
  error    json,                                       -- JSON record of the exception raised instead
  answered bigint,
  PRIMARY KEY (run, number)
);
CREATE UNIQUE INDEX messages_key ON messages (run, key) WHERE key IS NOT NULL;
CREATE INDEX messages_unread ON messages (run, kind, topic, number) WHERE received IS NULL;

-- Named values of a run that anybody can read; the last of each key counts.
CREATE TABLE events (
  run      text COLLATE "C" NOT NULL,
  key      text COLLATE "C" NOT NULL,
  number   bigint NOT NULL,                            -- from 0
  value    json,                                       -- JSON
  said     bigint NOT NULL,
  position text COLLATE "C",                           -- the operation that said it
  PRIMARY KEY (run, key, number)
);

-- Named lists of values of a run that anybody can read.
CREATE TABLE streams (
  run      text COLLATE "C" NOT NULL,
  key      text COLLATE "C" NOT NULL,
  number   bigint NOT NULL,                            -- the offset, from 0
  value    json,                                       -- JSON; NULL: the stream is closed
  said     bigint NOT NULL,
  position text COLLATE "C",                           -- the operation that said it
  PRIMARY KEY (run, key, number)
);

-- What a run waits for, without reading all that it has done.
CREATE INDEX steps_unfinished ON steps (run) WHERE completed IS NULL;
