-- Queues: named streams of runs with limits. A run in a queue that is not here waits until it is.
CREATE TABLE queues (
  name     text COLLATE "C" NOT NULL PRIMARY KEY,
  limits   json NOT NULL DEFAULT '{}',     -- JSON object: concurrency, worker_concurrency, rate, partition_concurrency …
  retry    json,                           -- JSON object: how often and how soon its runs are tried again
  paused   boolean NOT NULL DEFAULT false, -- nothing new begins
  declared json,                           -- JSON: what the code said when it was last applied; NULL: made at run time
  version  text,                           -- the version of the app that said so
  created  bigint NOT NULL
);

-- Limits of single partitions, where they differ from those of their queue.
CREATE TABLE queue_partitions (
  queue     text COLLATE "C" NOT NULL,
  partition text COLLATE "C" NOT NULL,
  limits    json NOT NULL,                 -- JSON object, as in queues
  PRIMARY KEY (queue, partition)
);

-- What a rate counts: one row for each start within its window. Older ones are swept when runs are taken.
CREATE TABLE queue_starts (
  queue     text COLLATE "C" NOT NULL,
  partition text COLLATE "C" NOT NULL,
  at        bigint NOT NULL
);
CREATE INDEX queue_starts_at ON queue_starts (queue, at);

ALTER TABLE runs ADD COLUMN queue text COLLATE "C";                              -- NULL: taken by whoever has room
ALTER TABLE runs ADD COLUMN priority bigint NOT NULL DEFAULT 0;     -- smaller first
ALTER TABLE runs ADD COLUMN partition text COLLATE "C" NOT NULL DEFAULT '';      -- share of a queue with limits and turns of its own
ALTER TABLE runs ADD COLUMN key text COLLATE "C";                                -- at most one unfinished run has it
ALTER TABLE runs ADD COLUMN attempts bigint NOT NULL DEFAULT 0;     -- attempts that failed
ALTER TABLE runs ADD COLUMN retry json;                              -- JSON object: how often and how soon it is tried again
ALTER TABLE runs ADD COLUMN since bigint;                           -- first claim of this attempt: from then on it has a place in its queue
ALTER TABLE runs ADD COLUMN latest bigint;                          -- debounced: further calls put it off until then at most
ALTER TABLE runs ADD COLUMN asked text COLLATE "C";                            -- the request that last shaped it, if that was not its own

ALTER TABLE workers ADD COLUMN crontab text NOT NULL DEFAULT '{}'; -- JSON object: the crontab entries it lists, with their patterns

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
