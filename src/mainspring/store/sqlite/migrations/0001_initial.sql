-- All tables, indexes and views. docs/reference/tables.md explains them.
--
-- Names begin with mainspring_, so that the tables of a user's own can be in the same file.
-- Times are integer microseconds since 1970, UTC. Values are JSON as text. Booleans are 0 and 1.
-- The CHECKs are written with OR: of an IN list with more than two values SQLite makes a temporary table in every statement that
-- writes the column, which takes longer than the rest of a small INSERT. The values that are written most come first.
-- No foreign keys: a run may wait for, or belong to, a row that was pruned or is not there yet, and each insert would look into
-- another table. `mainspring db check` finds rows that belong to nothing.

-- Everything that executes is a run: one row, from the moment it is requested.
CREATE TABLE mainspring_runs (
  id              TEXT NOT NULL PRIMARY KEY,  -- given by the caller, or equal to uid
  uid             TEXT NOT NULL,              -- sorts by creation; never used twice, even when an id is
  workflow        TEXT NOT NULL,              -- name of the function
  kind            TEXT NOT NULL,              -- what the function is
  state           TEXT NOT NULL,              -- see CHECK; the ended ones are succeeded, failed and cancelled
  reason          TEXT,                       -- why it was cancelled or failed, in words
  due             INTEGER,                    -- earliest start; of a waiting run: when it is to be woken; NULL: no time does that
  created         INTEGER NOT NULL,           -- when it was requested
  started         INTEGER,                    -- first claim
  completed       INTEGER,                    -- when it ended
  timeout         INTEGER,                    -- microseconds that it may take from the first claim
  deadline        INTEGER,                    -- when its timeout or that of its parent ends it, whichever is sooner
  owner           TEXT,                       -- the worker that executes it
  epoch           INTEGER NOT NULL DEFAULT 0, -- number of claims: the fencing token
  began_epoch     INTEGER NOT NULL DEFAULT 1, -- the epoch in which its present attempt began; in later ones the attempt goes on
  needs_attention INTEGER NOT NULL DEFAULT 0, -- something happened to it that its owner has not read yet
  recoveries      INTEGER NOT NULL DEFAULT 0, -- how often its worker was lost
  attempts        INTEGER NOT NULL DEFAULT 0, -- attempts that were made, with the one under way
  version         TEXT,                       -- version of the app that began it
  fingerprint     TEXT NOT NULL DEFAULT '',   -- hash of its function's name and source when it began
  parent          TEXT,                       -- the run it is a child of: cancelled and timed out with it
  scheduled_by    TEXT,                       -- the run that requested it without being its parent
  scheduled_time  INTEGER,                    -- when it was to run, by run_after or run_at; NULL for other runs
  schedule        TEXT,                       -- the schedule that started it
  end_unprocessed INTEGER NOT NULL DEFAULT 0, -- its schedule has not processed its end yet
  end_unreported  INTEGER NOT NULL DEFAULT 0, -- it ended without an owner, and its end is yet to be reported to app.on
  queue           TEXT,                       -- NULL: in no queue, any worker with room claims it
  partition       TEXT NOT NULL DEFAULT '',   -- share of a queue with limits and turns of its own; empty: none
  priority        INTEGER NOT NULL DEFAULT 0, -- smaller first
  key             TEXT,                       -- at most one unfinished run has it
  attempt_started INTEGER,                    -- first claim of this attempt: from then on it counts in its queue's concurrency
  debounce_until  INTEGER,                    -- debounced: further calls delay it until then at most
  last_request    TEXT,                       -- uid of the request that last changed it, if that was not its own
  forked_from     TEXT,                       -- the run it was forked from
  forked_at       TEXT,                       -- position of the first operation that was not copied; end: all were copied; NULL: none
  generation      INTEGER NOT NULL DEFAULT 0, -- how often it began again with continue_as
  undo_reason     TEXT,                       -- why it was stopped, while it has undo functions yet to run
  attributes      TEXT NOT NULL DEFAULT '{}', -- JSON object, to find runs by
  blocked         TEXT,                       -- JSON object: reason, why it cannot continue, and versions, those that tried
  retry           TEXT,                       -- JSON object: how often and how soon it is retried
  tick            TEXT,                       -- JSON object: the tick that started it, and what the schedule knew then
  input           TEXT NOT NULL,              -- JSON object of the arguments by name
  output          TEXT,                       -- JSON of the result
  error           TEXT,                       -- JSON object that describes the exception
  is_function     INTEGER GENERATED ALWAYS AS (CASE WHEN scheduled_time IS NULL THEN 0 ELSE 1 END) VIRTUAL, -- for an index: SQLAlchemy warns of one on an expression
  has_ended       INTEGER GENERATED ALWAYS AS (CASE WHEN completed IS NULL THEN 0 ELSE 1 END) VIRTUAL, -- the same
  CONSTRAINT runs_kind_check CHECK (kind = 'workflow' OR kind = 'step' OR kind = 'transaction'),
  CONSTRAINT runs_state_check CHECK (state = 'running' OR state = 'queued' OR state = 'waiting' OR
    state = 'succeeded' OR state = 'scheduled' OR state = 'failed' OR state = 'cancelled' OR state = 'cancelling'),
  CONSTRAINT runs_due_check CHECK (due IS NOT NULL OR state <> 'queued'),
  CONSTRAINT runs_parent_check CHECK (parent IS NULL OR id <> uid) -- children are listed by the index of uids
);
-- pages of runs, latest first, with the primary key, which has the uids of the other runs; two runs never share a uid
CREATE UNIQUE INDEX mainspring_runs_uid ON mainspring_runs (uid) WHERE (id <> uid OR id < '1k' OR id >= '2');
-- claim: waiting runs of each queue, and of none, that a worker knows the functions of, partition by partition
CREATE INDEX mainspring_runs_waiting ON mainspring_runs (queue, workflow, partition, priority, due, uid)
  WHERE state = 'queued' AND (queue IS NULL OR attempt_started IS NULL);
-- claim: ready runs that count in their queue already and go on
CREATE INDEX mainspring_runs_resumed ON mainspring_runs (due, uid) WHERE state = 'queued' AND queue IS NOT NULL AND attempt_started IS NOT NULL;
-- claim: how many runs of a queue and partition count in its concurrency
CREATE INDEX mainspring_runs_placed ON mainspring_runs (queue, partition)
  WHERE queue IS NOT NULL AND attempt_started IS NOT NULL AND state IN ('queued', 'running', 'waiting', 'cancelling');
-- claim: runs whose time has come, and when the next one is due
CREATE INDEX mainspring_runs_due ON mainspring_runs (due) WHERE owner IS NULL AND state IN ('scheduled', 'waiting');
-- start with a key: the unfinished run that has it
CREATE UNIQUE INDEX mainspring_runs_key ON mainspring_runs (key) WHERE key IS NOT NULL AND completed IS NULL;
-- runs of a worker: its lease, its end, its load, and those that it has to look at; owners without a worker
CREATE INDEX mainspring_runs_owner ON mainspring_runs (owner, needs_attention) WHERE owner IS NOT NULL;
-- expire: runs without an owner whose deadline has passed
CREATE INDEX mainspring_runs_deadline ON mainspring_runs (deadline)
  WHERE deadline IS NOT NULL AND owner IS NULL AND state IN ('scheduled', 'queued', 'waiting') AND undo_reason IS NULL;
-- children of a run: cancel, terminate, expire, delete and show a tree
CREATE INDEX mainspring_runs_parent ON mainspring_runs (parent) WHERE parent IS NOT NULL;
-- ends to process, by a pass of the scheduler, and ends to report, oldest first
CREATE INDEX mainspring_runs_end_unhandled ON mainspring_runs (completed) WHERE completed IS NOT NULL AND (end_unprocessed = 1 OR end_unreported);
-- list: runs that failed, that were cancelled, or that are blocked, latest first; a worker starts: ready runs that other source began, which
-- no live worker can continue
CREATE INDEX mainspring_runs_failed ON mainspring_runs (state, uid)
  WHERE state IN ('queued', 'failed', 'cancelled') AND (state <> 'queued' OR fingerprint <> '' OR blocked IS NOT NULL);
-- a pass of the scheduler: runs of a schedule whose end it has not processed, oldest first; list: runs of a schedule, latest first
CREATE INDEX mainspring_runs_of_schedule ON mainspring_runs (schedule, end_unprocessed, uid) WHERE schedule IS NOT NULL;
-- list: forks of a run
CREATE INDEX mainspring_runs_forked ON mainspring_runs (forked_from) WHERE forked_from IS NOT NULL;
-- list: scheduled functions of a name that have not ended, or that have, by time
CREATE INDEX mainspring_runs_functions ON mainspring_runs (workflow, has_ended, scheduled_time, uid)
  WHERE scheduled_time IS NOT NULL;
-- prune: runs of a function, or scheduled functions, that ended before a time; list: runs by the time of their end
CREATE INDEX mainspring_runs_ended ON mainspring_runs (workflow, is_function, completed) WHERE completed IS NOT NULL;

-- Runs that run_after and run_at made, as Convex shows scheduled functions: times in milliseconds since 1970.
CREATE VIEW scheduled_functions AS SELECT
  id,
  created / 1000.0 AS created,
  workflow AS name,
  json_array(json(input)) AS args,
  scheduled_time / 1000.0 AS scheduled_time,
  completed / 1000.0 AS completed_time,
  CASE WHEN state IN ('scheduled', 'queued') THEN 'pending' WHEN state IN ('running', 'waiting') THEN 'in_progress'
    WHEN state = 'succeeded' THEN 'success' WHEN state = 'failed' THEN 'failed' ELSE 'canceled' END AS state,
  CASE WHEN state = 'failed' THEN coalesce(json_extract(error, '$.message'), reason) END AS error
FROM mainspring_runs WHERE scheduled_time IS NOT NULL;

-- What a run has done: one row per operation, at its position in the run.
CREATE TABLE mainspring_steps (
  run       TEXT NOT NULL,              -- id of the run
  position  TEXT NOT NULL,              -- 0, 1, 2 …; t0.0 in the first task that the run created; c:0 beside operation 0
  kind      TEXT NOT NULL,              -- which operation; see docs/reference/tables.md
  name      TEXT NOT NULL,              -- of the step, workflow, topic, event …; of a result: the id of the run
  seq       INTEGER,                    -- the order in which outcomes were recorded, from 0
  started   INTEGER,                    -- when it began for the first time
  completed INTEGER,                    -- NULL: it has begun and has no outcome yet
  attempts  INTEGER NOT NULL DEFAULT 0, -- how often the function was executed
  epoch     INTEGER NOT NULL,           -- the claim under which it was recorded
  child     TEXT,                       -- the run that it started or waits for
  due       INTEGER,                    -- when it is to be woken
  output    TEXT,                       -- JSON of the result
  error     TEXT,                       -- JSON object that describes the exception
  trail     TEXT,                       -- JSON list of the attempts, if there was more than one: `error`, `from`, `to`
  discarded INTEGER NOT NULL DEFAULT 0, -- its run cancelled it after its outcome was recorded, which was not delivered
  PRIMARY KEY (run, position),
  CONSTRAINT steps_kind_check CHECK (kind = 'step' OR kind = 'transaction' OR kind = 'sleep' OR kind = 'start' OR
    kind = 'call' OR kind = 'result' OR kind = 'ended' OR kind = 'send' OR kind = 'receive' OR kind = 'set_event' OR
    kind = 'event' OR kind = 'write_stream' OR kind = 'close_stream' OR kind = 'stream' OR kind = 'question' OR
    kind = 'answer' OR kind = 'undo' OR kind = 'patch' OR kind = 'mark')
) WITHOUT ROWID;
-- a run ends: the runs that wait for it
CREATE INDEX mainspring_steps_waiting ON mainspring_steps (child) WHERE completed IS NULL AND child IS NOT NULL;
-- suspend: what a run waits for, without reading all that it has done
CREATE INDEX mainspring_steps_unfinished ON mainspring_steps (run) WHERE completed IS NULL;
-- cancel: whether a run has something to undo
CREATE INDEX mainspring_steps_undo ON mainspring_steps (run) WHERE kind = 'undo';

-- Messages and questions to a run, numbered in the order in which they were committed.
CREATE TABLE mainspring_messages (
  run      TEXT NOT NULL,    -- id of the run that it is for
  number   INTEGER NOT NULL, -- from 0, in the order of commits
  kind     TEXT NOT NULL,    -- a question has an answer
  topic    TEXT NOT NULL,    -- the topic, or the name of the question
  key      TEXT,             -- given by the sender; a second message with this key is not stored
  sender   TEXT,             -- id of the run that sent it
  sent     INTEGER NOT NULL, -- when it was sent
  received INTEGER,          -- when the run received it
  position TEXT,             -- the operation that received it
  answered INTEGER,          -- when the question was answered
  body     TEXT NOT NULL,    -- JSON of the message
  answer   TEXT,             -- JSON of the answer to a question
  error    TEXT,             -- JSON object that describes the exception raised instead of an answer
  PRIMARY KEY (run, number),
  CONSTRAINT messages_kind_check CHECK (kind = 'message' OR kind = 'question')
) WITHOUT ROWID;
-- send: a message whose key is there already
CREATE UNIQUE INDEX mainspring_messages_key ON mainspring_messages (run, key) WHERE key IS NOT NULL;
-- receive: the first message of a topic that was not received
CREATE INDEX mainspring_messages_unread ON mainspring_messages (run, kind, topic, number) WHERE received IS NULL;
-- continue_as: messages that may go, without reading the keys that remain of older ones
CREATE INDEX mainspring_messages_over ON mainspring_messages (run) WHERE position IS NOT NULL OR answered IS NOT NULL;

-- Named values of a run that any caller can read; the row with the highest number of a key is its value.
CREATE TABLE mainspring_events (
  run      TEXT NOT NULL,    -- id of the run that set it
  key      TEXT NOT NULL,    -- name of the event
  number   INTEGER NOT NULL, -- from 0
  set_at   INTEGER NOT NULL, -- when it was set
  position TEXT,             -- the operation that set it
  value    TEXT,             -- JSON of the value
  PRIMARY KEY (run, key, number)
) WITHOUT ROWID;

-- Named lists of values of a run that any caller can read.
CREATE TABLE mainspring_streams (
  run      TEXT NOT NULL,    -- id of the run that wrote it
  key      TEXT NOT NULL,    -- name of the stream
  number   INTEGER NOT NULL, -- the offset, from 0
  set_at   INTEGER NOT NULL, -- when it was written
  position TEXT,             -- the operation that wrote it
  value    TEXT,             -- JSON of the value; NULL: the stream is closed
  PRIMARY KEY (run, key, number)
) WITHOUT ROWID;

-- What was logged inside runs (setting keep_logs).
CREATE TABLE mainspring_logs (
  number   INTEGER NOT NULL PRIMARY KEY, -- in the order in which they were stored
  run      TEXT NOT NULL,                -- id of the run
  at       INTEGER NOT NULL,             -- when it was logged
  level    TEXT NOT NULL,                -- name of the level; not checked, since programs add levels
  logger   TEXT NOT NULL,                -- name of the logger
  message  TEXT NOT NULL,                -- the text, with traceback if there was one
  step     TEXT,                         -- name of the step it was logged in
  position TEXT,                         -- position of the operation it was logged in
  attempt  INTEGER,                      -- attempt of that step
  worker   TEXT                          -- id of the worker that executed the run
);
-- logs of a run, in order; delete them with it
CREATE INDEX mainspring_logs_run ON mainspring_logs (run, number);

-- A schedule decides when a run is started, and whether.
CREATE TABLE mainspring_schedules (
  id           TEXT NOT NULL PRIMARY KEY,  -- given by its maker
  workflow     TEXT NOT NULL,              -- name of the function that is started
  created      INTEGER NOT NULL,           -- when it was made
  updated      INTEGER NOT NULL,           -- when its definition last changed
  revision     INTEGER NOT NULL DEFAULT 1, -- grows with each change of its definition, and each pause and resume
  cursor       INTEGER NOT NULL,           -- nominal time: everything up to here has a tick
  due          INTEGER,                    -- when a scheduler has to look at it; NULL: at no time
  upcoming     INTEGER,                    -- the next nominal time that is not to be skipped
  paused       INTEGER NOT NULL DEFAULT 0, -- the clock has no effect
  resume_at    INTEGER,                    -- when a pause ends by itself
  note         TEXT,                       -- a text of its maker
  pause_note   TEXT,                       -- the reason that was given when it was last paused or resumed
  remaining    INTEGER,                    -- how many runs the clock may still start; NULL: any number
  stopped      TEXT,                       -- why it has no effect any more: no longer declared
  app          TEXT,                       -- the app whose code declares it; NULL: made at run time
  version      TEXT,                       -- the version of the app that declares it
  made_by      TEXT,                       -- the run and operation that made it, if a run did
  starts       INTEGER NOT NULL DEFAULT 0, -- runs it has started
  missed       INTEGER NOT NULL DEFAULT 0, -- ticks it has missed
  skipped      INTEGER NOT NULL DEFAULT 0, -- ticks left out because of runs that were unfinished
  dropped      INTEGER NOT NULL DEFAULT 0, -- ticks left out because the buffer was full, or their backfill or run was stopped
  failures     INTEGER NOT NULL DEFAULT 0, -- runs that failed in a row
  fault        TEXT,                       -- why it could not be planned
  runs_since   TEXT DEFAULT '',            -- uid of the oldest run whose end it has not processed; NULL: there is none; empty: not known
  attributes   TEXT NOT NULL DEFAULT '{}', -- JSON object, to find schedules by
  spec         TEXT NOT NULL,              -- JSON object: when, as it was entered
  canonical    TEXT NOT NULL,              -- JSON object: the same times in one form
  action       TEXT NOT NULL,              -- JSON object: how the run is started
  policy       TEXT NOT NULL,              -- JSON object: overlap, catch-up and the rest, with defaults filled in
  declared     TEXT,                       -- JSON object: its definition as declared last; NULL: made at run time
  skips        TEXT NOT NULL DEFAULT '[]', -- JSON list of nominal times that are to be left out
  input        TEXT NOT NULL,              -- JSON object of the arguments by name
  last_result  TEXT,                       -- JSON of the result of the run that succeeded last
  last_failure TEXT                        -- JSON object that describes the exception of the run that ended last, if it failed
);
-- a pass of the scheduler: schedules that are due, and when the next one is
CREATE INDEX mainspring_schedules_due ON mainspring_schedules (due);
-- the dashboard: what comes next
CREATE INDEX mainspring_schedules_upcoming ON mainspring_schedules (upcoming) WHERE upcoming IS NOT NULL;
-- a worker starts: the schedules that its app has declared
CREATE INDEX mainspring_schedules_app ON mainspring_schedules (app) WHERE app IS NOT NULL;

-- The outcome of each nominal time of a schedule. A long stretch of ticks with one outcome is one row.
CREATE TABLE mainspring_ticks (
  schedule TEXT NOT NULL,              -- id of the schedule
  nominal  INTEGER NOT NULL,           -- the time that the spec names; of a trigger: when it was requested
  request  TEXT NOT NULL DEFAULT '',   -- empty for the clock; else the trigger or backfill that requested it
  source   TEXT NOT NULL,              -- where the tick comes from
  due      INTEGER NOT NULL,           -- the time to act: the nominal time and the jitter
  outcome  TEXT NOT NULL,              -- pending and buffered wait; the others are final
  reason   TEXT,                       -- why, in words
  acted    INTEGER,                    -- when that was decided
  run      TEXT,                       -- id of the run that it started
  overlap  TEXT,                       -- the overlap policy that was requested instead of the schedule's
  until    INTEGER,                    -- the row stands for all ticks from nominal to here …
  count    INTEGER NOT NULL DEFAULT 1, -- … which are so many
  PRIMARY KEY (schedule, nominal, request),
  CONSTRAINT ticks_source_check CHECK (source = 'clock' OR source = 'catchup' OR source = 'trigger' OR
    source = 'backfill'),
  CONSTRAINT ticks_outcome_check CHECK (outcome = 'pending' OR outcome = 'buffered' OR outcome = 'fired' OR
    outcome = 'late' OR outcome = 'skipped_overlap' OR outcome = 'skipped_by_request' OR outcome = 'missed' OR
    outcome = 'paused' OR outcome = 'dropped' OR outcome = 'replaced' OR outcome = 'start_failed'),
  CONSTRAINT ticks_overlap_check CHECK (overlap = 'skip' OR overlap = 'buffer_one' OR overlap = 'buffer_all' OR
    overlap = 'cancel_other' OR overlap = 'terminate_other' OR overlap = 'allow_all')
) WITHOUT ROWID;
-- a pass of the scheduler: ticks that wait
CREATE INDEX mainspring_ticks_waiting ON mainspring_ticks (schedule, due) WHERE outcome IN ('pending', 'buffered');
-- the dashboard: ticks of a schedule that did not fire in time
CREATE INDEX mainspring_ticks_not_fired ON mainspring_ticks (schedule, nominal) WHERE outcome NOT IN ('fired', 'pending', 'buffered');
-- the dashboard: ticks of all schedules that started nothing
CREATE INDEX mainspring_ticks_lost ON mainspring_ticks (nominal) WHERE outcome IN ('missed', 'skipped_overlap', 'dropped', 'start_failed');

-- Stretches of time whose actions are, or were, taken on request.
CREATE TABLE mainspring_backfills (
  id        TEXT NOT NULL PRIMARY KEY,  -- its ticks have it as request
  schedule  TEXT NOT NULL,              -- id of the schedule
  since     INTEGER NOT NULL,           -- where it begins; both ends belong to it
  until     INTEGER NOT NULL,           -- where it ends
  overlap   TEXT NOT NULL,              -- the overlap policy of its ticks
  again     INTEGER NOT NULL DEFAULT 0, -- also times that have a run already
  created   INTEGER NOT NULL,           -- when it was requested
  cursor    INTEGER NOT NULL,           -- nominal time: everything up to here is done
  completed INTEGER,                    -- when all its ticks had been made, or when it was stopped
  stopped   INTEGER NOT NULL DEFAULT 0, -- an operator stopped it
  started   INTEGER NOT NULL DEFAULT 0, -- ticks it has made
  skipped   INTEGER NOT NULL DEFAULT 0, -- times that had a run already, or were left to the clock
  CONSTRAINT backfills_overlap_check CHECK (overlap = 'skip' OR overlap = 'buffer_one' OR overlap = 'buffer_all' OR
    overlap = 'cancel_other' OR overlap = 'terminate_other' OR overlap = 'allow_all')
);
-- a pass of the scheduler: backfills that are not done
CREATE INDEX mainspring_backfills_active ON mainspring_backfills (schedule, id) WHERE completed IS NULL;
-- a pass of the scheduler: backfills that may have taken times ahead of the clock
CREATE INDEX mainspring_backfills_reach ON mainspring_backfills (schedule, until);

-- Functions of an app that are called when something happens to a schedule.
CREATE TABLE mainspring_hooks (
  app       TEXT NOT NULL,              -- the app whose code declares it
  event     TEXT NOT NULL,              -- what has to happen
  function  TEXT NOT NULL,              -- name of the function that is called
  kind      TEXT NOT NULL,              -- what the function is
  parameter TEXT NOT NULL,              -- its parameter that takes the alert
  after     INTEGER NOT NULL DEFAULT 0, -- microseconds from which a tick is late
  version   TEXT NOT NULL,              -- the version of the app that declares it
  PRIMARY KEY (app, event, function),
  CONSTRAINT hooks_event_check CHECK (event = 'missed' OR event = 'late' OR event = 'paused_by_failure'),
  CONSTRAINT hooks_kind_check CHECK (kind = 'workflow' OR kind = 'step' OR kind = 'transaction')
);

-- Named queues of runs with limits. A run in a queue that is not here waits until it is.
CREATE TABLE mainspring_queues (
  name     TEXT NOT NULL PRIMARY KEY,  -- what runs name in queue
  paused   INTEGER NOT NULL DEFAULT 0, -- no new run begins
  version  TEXT,                       -- the version of the app that declared it last
  created  INTEGER NOT NULL,           -- when it was made
  limits   TEXT NOT NULL DEFAULT '{}', -- JSON object: concurrency, worker_concurrency, rate, partition_concurrency …
  retry    TEXT,                       -- JSON object: how often and how soon its runs are retried
  declared TEXT                        -- JSON object: what the code declared last; NULL: made at run time
);

-- Limits of single partitions, where they differ from those of their queue.
CREATE TABLE mainspring_queue_partitions (
  queue     TEXT NOT NULL, -- name of the queue
  partition TEXT NOT NULL, -- name of the partition
  limits    TEXT NOT NULL, -- JSON object, as in queues
  PRIMARY KEY (queue, partition)
);

-- What a rate counts: one row for each start within its window. A claim deletes older ones.
CREATE TABLE mainspring_queue_starts (
  queue     TEXT NOT NULL,    -- name of the queue
  partition TEXT NOT NULL,    -- partition of the run; empty: none
  at        INTEGER NOT NULL  -- when it began
);
-- claim: starts of a queue within the window of its rate
CREATE INDEX mainspring_queue_starts_at ON mainspring_queue_starts (queue, at);

-- Processes that execute runs. A worker deletes its row when it stops; other workers delete those that died.
CREATE TABLE mainspring_workers (
  id        TEXT NOT NULL PRIMARY KEY,  -- host, process id and a random part
  host      TEXT NOT NULL,              -- name of the machine
  boot      TEXT NOT NULL,              -- boot and pid namespace of that machine, in which pid means something
  pid       INTEGER NOT NULL,           -- process id
  pid_start INTEGER NOT NULL,           -- when that process began, in clock ticks since boot
  version   TEXT NOT NULL,              -- version of the app
  started   INTEGER NOT NULL,           -- when it registered
  beat      INTEGER NOT NULL DEFAULT 0, -- grows while it lives
  seen      INTEGER NOT NULL,           -- when beat last grew
  functions TEXT NOT NULL,              -- JSON object: name and fingerprint of each function it executes
  crontab   TEXT NOT NULL DEFAULT '{}', -- JSON object: the pattern of each crontab entry that it lists
  instances TEXT NOT NULL DEFAULT '{}'  -- JSON object: each method it executes, with the names of its instances
);

-- Versions of the app that have been seen.
CREATE TABLE mainspring_versions (
  version    TEXT NOT NULL PRIMARY KEY, -- a version of the app
  first_seen INTEGER NOT NULL           -- when a worker of that version first started
);

-- What operators did, on the dashboard and with commands: one row per action, written before the action.
CREATE TABLE mainspring_actions (
  id      TEXT NOT NULL PRIMARY KEY, -- sorts by time
  at      INTEGER NOT NULL,          -- when it was requested
  who     TEXT NOT NULL,             -- the operator, as the dashboard or the command line knows them
  action  TEXT NOT NULL,             -- runs.cancel, schedules.pause …
  reason  TEXT,                      -- why, in the operator's words
  subject TEXT NOT NULL,             -- JSON list of the ids that it was about
  details TEXT NOT NULL,             -- JSON object: the other options of the request
  outcome TEXT                       -- JSON of the result; NULL: the process died before recording the result
) WITHOUT ROWID;

-- How many runs of all functions ended in each minute, how long they took and how late they began.
CREATE TABLE mainspring_activity (
  minute  INTEGER NOT NULL, -- when it begins
  measure TEXT NOT NULL,    -- what micros adds up
  state   TEXT NOT NULL,    -- how the runs ended
  count   INTEGER NOT NULL, -- how many runs
  micros  INTEGER NOT NULL, -- the measure of all of them together, in microseconds
  PRIMARY KEY (minute, measure, state),
  CONSTRAINT activity_measure_check CHECK (measure = 'duration' OR measure = 'lateness'),
  CONSTRAINT activity_state_check CHECK (state = 'succeeded' OR state = 'failed' OR state = 'cancelled')
) WITHOUT ROWID;

-- The same by function and by class of durations, since the beginning.
CREATE TABLE mainspring_activity_totals (
  workflow TEXT NOT NULL,    -- name of the function
  measure  TEXT NOT NULL,    -- what micros adds up
  state    TEXT NOT NULL,    -- how the runs ended
  bucket   INTEGER NOT NULL, -- class of durations, from the shortest
  count    INTEGER NOT NULL, -- how many runs
  micros   INTEGER NOT NULL, -- the measure of all of them together, in microseconds
  PRIMARY KEY (workflow, measure, state, bucket),
  CONSTRAINT activity_totals_measure_check CHECK (measure = 'duration' OR measure = 'lateness'),
  CONSTRAINT activity_totals_state_check CHECK (state = 'succeeded' OR state = 'failed' OR state = 'cancelled')
) WITHOUT ROWID;

-- Facts about this database as a whole, and sessions of the dashboard.
CREATE TABLE mainspring_meta (
  key   TEXT NOT NULL PRIMARY KEY, -- store; or session and a digest of the secret in a browser's cookie
  value TEXT NOT NULL              -- of store: the name that this database has in others; of a session: JSON
) WITHOUT ROWID;
