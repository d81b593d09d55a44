-- Queues: named streams of runs with limits. A run in a queue that is not here waits until it is.
CREATE TABLE queues (
  name     TEXT NOT NULL PRIMARY KEY,
  limits   TEXT NOT NULL DEFAULT '{}',     -- JSON object: concurrency, worker_concurrency, rate, partition_concurrency …
  retry    TEXT,                           -- JSON object: how often and how soon its runs are tried again
  paused   INTEGER NOT NULL DEFAULT 0,     -- nothing new begins
  declared TEXT,                           -- JSON: what the code said when it was last applied; NULL: made at run time
  version  TEXT,                           -- the version of the app that said so
  created  INTEGER NOT NULL
);

-- Limits of single partitions, where they differ from those of their queue.
CREATE TABLE queue_partitions (
  queue     TEXT NOT NULL,
  partition TEXT NOT NULL,
  limits    TEXT NOT NULL,                 -- JSON object, as in queues
  PRIMARY KEY (queue, partition)
);

-- What a rate counts: one row for each start within its window. Older ones are swept when runs are taken.
CREATE TABLE queue_starts (
  queue     TEXT NOT NULL,
  partition TEXT NOT NULL,
  at        INTEGER NOT NULL
);
CREATE INDEX queue_starts_at ON queue_starts (queue, at);

ALTER TABLE runs ADD COLUMN queue TEXT;                              -- NULL: taken by whoever has room
ALTER TABLE runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;     -- smaller first
ALTER TABLE runs ADD COLUMN partition TEXT NOT NULL DEFAULT '';      -- share of a queue with limits and turns of its own
ALTER TABLE runs ADD COLUMN key TEXT;                                -- at most one unfinished run has it
ALTER TABLE runs ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;     -- attempts that failed
ALTER TABLE runs ADD COLUMN retry TEXT;                              -- JSON object: how often and how soon it is tried again
ALTER TABLE runs ADD COLUMN since INTEGER;                           -- first claim of this attempt: from then on it has a place in its queue
ALTER TABLE runs ADD COLUMN latest INTEGER;                          -- debounced: further calls put it off until then at most
ALTER TABLE runs ADD COLUMN asked TEXT;                               -- the request that last shaped it, if that was not its own

ALTER TABLE workers ADD COLUMN crontab TEXT NOT NULL DEFAULT '{}'; -- JSON object: the crontab entries it lists, with their patterns

DROP INDEX runs_ready;
CREATE INDEX runs_ready ON runs (priority, due, uid) WHERE state = 'queued' AND queue IS NULL;
CREATE INDEX runs_queue ON runs (queue, partition, priority, due, uid)
  WHERE state = 'queued' AND queue IS NOT NULL AND since IS NULL;
CREATE INDEX runs_resumed ON runs (due, uid) WHERE state = 'queued' AND queue IS NOT NULL AND since IS NOT NULL;
CREATE INDEX runs_placed ON runs (queue, partition)
  WHERE queue IS NOT NULL AND since IS NOT NULL AND state IN ('queued', 'running', 'waiting', 'cancelling');
CREATE INDEX runs_begun ON runs (workflow, fingerprint) WHERE state = 'queued' AND fingerprint <> '';
CREATE UNIQUE INDEX runs_key ON runs (key)
  WHERE key IS NOT NULL AND state IN ('scheduled', 'queued', 'running', 'waiting', 'cancelling');
