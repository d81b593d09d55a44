-- All tables, indexes and views. docs/reference/tables.md explains them.
--
-- Times are bigint microseconds since 1970, UTC, as in SQLite; the views at the end show them as timestamptz.
-- Ids and names are compared byte by byte (COLLATE "C"), as in Python and in SQLite, in every locale.
-- The type of a JSON column has its reason in brackets. json [as written]: values are returned whole, with their keys in the order and
-- their numbers in the digits in which they were written. jsonb [searched …]: statements look for keys in many rows. text: the rest.
-- No foreign keys: a run may wait for, or belong to, a row that was pruned or is not there yet, and each insert would lock a row of
-- another table. `mainspring db check` finds rows that belong to nothing.

-- Everything that executes is a run: one row, from the moment it is requested. The order of the columns saves time: an update compares those
-- of all indexes, and to find one PostgreSQL passes over all before it. What a claim and an end change lies together: of an update within a
-- page PostgreSQL logs what lies between the first and the last byte that differ. The fillfactor leaves room for that.
CREATE TABLE runs (
  -- what each claim and end compares: columns of indexes that are seldom empty
  id              text COLLATE "C" NOT NULL PRIMARY KEY, -- given by the caller, or equal to uid
  uid             text COLLATE "C" NOT NULL,             -- sorts by creation; never used twice, even when an id is
  priority        bigint NOT NULL DEFAULT 0,             -- smaller first
  due             bigint,                                -- earliest start; of a waiting run: when it is to be woken; NULL: no time does that
  needs_attention boolean NOT NULL DEFAULT false,        -- something happened to it that its owner has not read yet
  end_unprocessed boolean NOT NULL DEFAULT false,        -- its schedule has not processed its end yet
  end_unreported  boolean NOT NULL DEFAULT false,        -- it ended without an owner, and its end is yet to be reported to app.on
  workflow        text COLLATE "C" NOT NULL,             -- name of the function
  queue           text COLLATE "C",                      -- NULL: in no queue, any worker with room claims it
  partition       text COLLATE "C" NOT NULL DEFAULT '',  -- share of a queue with limits and turns of its own; empty: none
  attributes      jsonb NOT NULL DEFAULT '{}',           -- JSON object, to find runs by [searched with @>]
  -- what each claim and end changes
  version         text,                                  -- version of the app that began it
  fingerprint     text NOT NULL DEFAULT '',              -- hash of its function's name and source when it began
  attempt_started bigint,                                -- first claim of this attempt: from then on it counts in its queue's concurrency
  owner           text COLLATE "C",                      -- the worker that executes it
  state           text NOT NULL,                         -- see CHECK; the ended ones are succeeded, failed and cancelled
  completed       bigint,                                -- when it ended
  reason          text,                                  -- why it was cancelled or failed, in words
  output          json,                                  -- JSON of the result [as written]
  error           json,                                  -- JSON object that describes the exception [as written]
  started         bigint,                                -- first claim
  began_epoch     integer NOT NULL DEFAULT 1,            -- the epoch in which its present attempt began; in later ones the attempt goes on
  attempts        integer NOT NULL DEFAULT 0,            -- attempts that were made, with the one under way
  epoch           integer NOT NULL DEFAULT 0,            -- number of claims: the fencing token
  -- how it stands: changed when it waits, is retried or is woken
  recoveries      integer NOT NULL DEFAULT 0,            -- how often its worker was lost
  generation      integer NOT NULL DEFAULT 0,            -- how often it began again with continue_as
  deadline        bigint,                                -- when its timeout or that of its parent ends it, whichever is sooner
  blocked         json,                                  -- JSON object: reason, why it cannot continue, and versions, those that tried [as written]
  undo_reason     text,                                  -- why it was stopped, while it has undo functions yet to run
  -- the rest of its request: seldom changed
  created         bigint NOT NULL,                       -- when it was requested
  timeout         bigint,                                -- microseconds that it may take from the first claim
  scheduled_time  bigint,                                -- when it was to run, by run_after or run_at; NULL for other runs
  debounce_until  bigint,                                -- debounced: further calls delay it until then at most
  kind            text NOT NULL,                         -- what the function is
  parent          text COLLATE "C",                      -- the run it is a child of: cancelled and timed out with it
  scheduled_by    text COLLATE "C",                      -- the run that requested it without being its parent
  schedule        text COLLATE "C",                      -- the schedule that started it
  key             text COLLATE "C",                      -- at most one unfinished run has it
  last_request    text COLLATE "C",                      -- uid of the request that last changed it, if that was not its own
  forked_from     text COLLATE "C",                      -- the run it was forked from
  forked_at       text COLLATE "C",                      -- position of the first operation that was not copied; end: all were copied; NULL: none
  retry           json,                                  -- JSON object: how often and how soon it is retried [as written]
  tick            json,                                  -- JSON object: the tick that started it, and what the schedule knew then [as written]
  input           json NOT NULL,                         -- JSON object of the arguments by name [as written]
  CONSTRAINT runs_kind_check CHECK (kind IN ('workflow', 'step', 'transaction')),
  CONSTRAINT runs_state_check CHECK (state IN ('succeeded', 'running', 'queued', 'waiting', 'scheduled', 'failed',
    'cancelled', 'cancelling')), -- the most frequent first
  CONSTRAINT runs_due_check CHECK (due IS NOT NULL OR state <> 'queued'),
  CONSTRAINT runs_parent_check CHECK (parent IS NULL OR id <> uid) -- children are listed by the index of uids
);
-- pages of runs, latest first, with the primary key, which has the uids of the other runs; two runs never share a uid
CREATE UNIQUE INDEX runs_uid ON runs (uid) WHERE (id <> uid OR id < '1k' OR id >= '2');
-- claim: waiting runs of each queue, and of none, that a worker knows the functions of, partition by partition
CREATE INDEX runs_waiting ON runs (queue, workflow, partition, priority, due, uid)
  WHERE state = 'queued' AND (queue IS NULL OR attempt_started IS NULL);
-- claim: ready runs that count in their queue already and go on
CREATE INDEX runs_resumed ON runs (due, uid) WHERE state = 'queued' AND queue IS NOT NULL AND attempt_started IS NOT NULL;
-- claim: the runs that count in the concurrency of a queue, those that began last
CREATE INDEX runs_placed ON runs (queue, attempt_started)
  WHERE queue IS NOT NULL AND attempt_started IS NOT NULL AND state IN ('queued', 'running', 'waiting', 'cancelling');
-- claim: runs whose time has come, and when the next one is due
CREATE INDEX runs_due ON runs (due) WHERE owner IS NULL AND state IN ('scheduled', 'waiting');
-- start with a key: the unfinished run that has it
CREATE UNIQUE INDEX runs_key ON runs (key) WHERE key IS NOT NULL AND completed IS NULL;
-- runs of a worker: its lease, its end, its load, and those that it has to look at; owners without a worker
CREATE INDEX runs_owner ON runs (owner, needs_attention) WHERE owner IS NOT NULL;
-- expire: runs without an owner whose deadline has passed
CREATE INDEX runs_deadline ON runs (deadline)
  WHERE deadline IS NOT NULL AND owner IS NULL AND state IN ('scheduled', 'queued', 'waiting') AND undo_reason IS NULL;
-- children of a run: cancel, terminate, expire, delete and show a tree
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;
-- ends to process, by a pass of the scheduler, and ends to report, oldest first
CREATE INDEX runs_end_unhandled ON runs (completed) WHERE completed IS NOT NULL AND (end_unprocessed OR end_unreported);
-- list: runs that failed, that were cancelled, or that are blocked, latest first; a worker starts: ready runs that other source began, which
-- no live worker can continue
CREATE INDEX runs_failed ON runs (state, uid)
  WHERE state IN ('queued', 'failed', 'cancelled') AND (state <> 'queued' OR fingerprint <> '' OR blocked IS NOT NULL);
-- a pass of the scheduler: runs of a schedule whose end it has not processed, oldest first; list: runs of a schedule, latest first
CREATE INDEX runs_of_schedule ON runs (schedule, end_unprocessed, uid) WHERE schedule IS NOT NULL;
-- list: forks of a run
CREATE INDEX runs_forked ON runs (forked_from) WHERE forked_from IS NOT NULL;
-- list: runs by their attributes
CREATE INDEX runs_attributes ON runs USING gin (attributes jsonb_path_ops) WHERE attributes <> '{}';
-- list: scheduled functions of a name that have not ended, or that have, by time
CREATE INDEX runs_functions ON runs (workflow, (CASE WHEN completed IS NULL THEN 0 ELSE 1 END), scheduled_time, uid)
  WHERE scheduled_time IS NOT NULL;
-- prune: runs of a function, or scheduled functions, that ended before a time; list: runs by the time of their end
CREATE INDEX runs_ended ON runs (workflow, (CASE WHEN scheduled_time IS NULL THEN 0 ELSE 1 END), completed) WHERE completed IS NOT NULL;

-- Runs that run_after and run_at made, as Convex shows scheduled functions: times in milliseconds since 1970.
CREATE VIEW scheduled_functions AS SELECT
  id,
  created / 1000.0 AS created,
  workflow AS name,
  json_build_array(input) AS args,
  scheduled_time / 1000.0 AS scheduled_time,
  completed / 1000.0 AS completed_time,
  CASE WHEN state IN ('scheduled', 'queued') THEN 'pending' WHEN state IN ('running', 'waiting') THEN 'in_progress'
    WHEN state = 'succeeded' THEN 'success' WHEN state = 'failed' THEN 'failed' ELSE 'canceled' END AS state,
  CASE WHEN state = 'failed' THEN coalesce(error ->> 'message', reason) END AS error
FROM runs WHERE scheduled_time IS NOT NULL;

-- What a run has done: one row per operation, at its position in the run.
CREATE TABLE steps (
  run       text COLLATE "C" NOT NULL, -- id of the run
  position  text COLLATE "C" NOT NULL, -- 0, 1, 2 …; t0.0 in the first task that the run created; c:0 beside operation 0
  kind      text NOT NULL,             -- which operation; see docs/reference/tables.md
  name      text NOT NULL,             -- of the step, workflow, topic, event …; of a result: the id of the run
  seq       integer,                   -- the order in which outcomes were recorded, from 0
  started   bigint,                    -- when it began for the first time
  completed bigint,                    -- NULL: it has begun and has no outcome yet
  attempts  integer NOT NULL DEFAULT 0, -- how often the function was executed
  epoch     integer NOT NULL,          -- the claim under which it was recorded
  child     text COLLATE "C",          -- the run that it started or waits for
  due       bigint,                    -- when it is to be woken
  output    json,                      -- JSON of the result [as written]
  error     json,                      -- JSON object that describes the exception [as written]
  trail     json,                      -- JSON list of the attempts, if there was more than one: `error`, `from`, `to` [as written]
  discarded boolean NOT NULL DEFAULT false, -- its run cancelled it after its outcome was recorded, which was not delivered
  PRIMARY KEY (run, position),
  CONSTRAINT steps_kind_check CHECK (kind IN ('step', 'transaction', 'sleep', 'start', 'call', 'result', 'ended',
    'send', 'receive', 'set_event', 'event', 'write_stream', 'close_stream', 'stream', 'question', 'answer', 'undo',
    'patch', 'mark'))
);
-- a run ends: the runs that wait for it
CREATE INDEX steps_waiting ON steps (child) WHERE completed IS NULL AND child IS NOT NULL;
-- suspend: what a run waits for, without reading all that it has done
CREATE INDEX steps_unfinished ON steps (run) WHERE completed IS NULL;
-- cancel: whether a run has something to undo
CREATE INDEX steps_undo ON steps (run) WHERE kind = 'undo';

-- Messages and questions to a run, numbered in the order in which they were committed.
CREATE TABLE messages (
  run      text COLLATE "C" NOT NULL, -- id of the run that it is for
  number   bigint NOT NULL,           -- from 0, in the order of commits
  kind     text NOT NULL,             -- a question has an answer
  topic    text COLLATE "C" NOT NULL, -- the topic, or the name of the question
  key      text COLLATE "C",          -- given by the sender; a second message with this key is not stored
  sender   text COLLATE "C",          -- id of the run that sent it
  sent     bigint NOT NULL,           -- when it was sent
  received bigint,                    -- when the run received it
  position text COLLATE "C",          -- the operation that received it
  answered bigint,                    -- when the question was answered
  body     json NOT NULL,             -- JSON of the message [as written]
  answer   json,                      -- JSON of the answer to a question [as written]
  error    json,                      -- JSON object that describes the exception raised instead of an answer [as written]
  PRIMARY KEY (run, number),
  CONSTRAINT messages_kind_check CHECK (kind IN ('message', 'question'))
);
-- send: a message whose key is there already
CREATE UNIQUE INDEX messages_key ON messages (run, key) WHERE key IS NOT NULL;
-- receive: the first message of a topic that was not received
CREATE INDEX messages_unread ON messages (run, kind, topic, number) WHERE received IS NULL;
-- continue_as: messages that may go, without reading the keys that remain of older ones
CREATE INDEX messages_over ON messages (run) WHERE position IS NOT NULL OR answered IS NOT NULL;

-- Named values of a run that any caller can read; the row with the highest number of a key is its value.
CREATE TABLE events (
  run      text COLLATE "C" NOT NULL, -- id of the run that set it
  key      text COLLATE "C" NOT NULL, -- name of the event
  number   bigint NOT NULL,           -- from 0
  set_at   bigint NOT NULL,           -- when it was set
  position text COLLATE "C",          -- the operation that set it
  value    json,                      -- JSON of the value [as written]
  PRIMARY KEY (run, key, number)
);

-- Named lists of values of a run that any caller can read.
CREATE TABLE streams (
  run      text COLLATE "C" NOT NULL, -- id of the run that wrote it
  key      text COLLATE "C" NOT NULL, -- name of the stream
  number   bigint NOT NULL,           -- the offset, from 0
  set_at   bigint NOT NULL,           -- when it was written
  position text COLLATE "C",          -- the operation that wrote it
  value    json,                      -- JSON of the value; NULL: the stream is closed [as written]
  PRIMARY KEY (run, key, number)
);

-- What was logged inside runs (setting keep_logs).
CREATE TABLE logs (
  number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order in which they were stored
  run      text COLLATE "C" NOT NULL,                       -- id of the run
  at       bigint NOT NULL,                                 -- when it was logged
  level    text NOT NULL,                                   -- name of the level; not checked, since programs add levels
  logger   text NOT NULL,                                   -- name of the logger
  message  text NOT NULL,                                   -- the text, with traceback if there was one
  step     text,                                            -- name of the step it was logged in
  position text COLLATE "C",                                -- position of the operation it was logged in
  attempt  bigint,                                          -- attempt of that step
  worker   text COLLATE "C"                                 -- id of the worker that executed the run
);
-- logs of a run, in order; delete them with it
CREATE INDEX logs_run ON logs (run, number);

-- A schedule decides when a run is started, and whether.
CREATE TABLE schedules (
  id           text COLLATE "C" NOT NULL PRIMARY KEY, -- given by its maker
  workflow     text COLLATE "C" NOT NULL,             -- name of the function that is started
  created      bigint NOT NULL,                       -- when it was made
  updated      bigint NOT NULL,                       -- when its definition last changed
  revision     bigint NOT NULL DEFAULT 1,             -- grows with each change of its definition, and each pause and resume
  cursor       bigint NOT NULL,                       -- nominal time: everything up to here has a tick
  due          bigint,                                -- when a scheduler has to look at it; NULL: at no time
  upcoming     bigint,                                -- the next nominal time that is not to be skipped
  paused       boolean NOT NULL DEFAULT false,        -- the clock has no effect
  resume_at    bigint,                                -- when a pause ends by itself
  note         text,                                  -- a text of its maker
  pause_note   text,                                  -- the reason that was given when it was last paused or resumed
  remaining    bigint,                                -- how many runs the clock may still start; NULL: any number
  stopped      text,                                  -- why it has no effect any more: no longer declared
  app          text COLLATE "C",                      -- the app whose code declares it; NULL: made at run time
  version      text,                                  -- the version of the app that declares it
  made_by      text,                                  -- the run and operation that made it, if a run did
  starts       bigint NOT NULL DEFAULT 0,             -- runs it has started
  missed       bigint NOT NULL DEFAULT 0,             -- ticks it has missed
  skipped      bigint NOT NULL DEFAULT 0,             -- ticks left out because of runs that were unfinished
  dropped      bigint NOT NULL DEFAULT 0,             -- ticks left out because the buffer was full, or their backfill or run was stopped
  failures     bigint NOT NULL DEFAULT 0,             -- runs that failed in a row
  fault        text,                                  -- why it could not be planned
  runs_since   text COLLATE "C" DEFAULT '',           -- uid of the oldest run whose end it has not processed; NULL: there is none; empty: not known
  attributes   jsonb NOT NULL DEFAULT '{}',           -- JSON object, to find schedules by [searched with @>]
  spec         json NOT NULL,                         -- JSON object: when, as it was entered [as written]
  canonical    json NOT NULL,                         -- JSON object: the same times in one form [as written]
  action       json NOT NULL,                         -- JSON object: how the run is started [as written]
  policy       json NOT NULL,                         -- JSON object: overlap, catch-up and the rest, with defaults filled in [as written]
  declared     json,                                  -- JSON object: its definition as declared last; NULL: made at run time [as written]
  skips        json NOT NULL DEFAULT '[]',            -- JSON list of nominal times that are to be left out [as written]
  input        json NOT NULL,                         -- JSON object of the arguments by name [as written]
  last_result  json,                                  -- JSON of the result of the run that succeeded last [as written]
  last_failure json                                   -- JSON object that describes the exception of the run that ended last, if it failed [as written]
);
-- a pass of the scheduler: schedules that are due, and when the next one is
CREATE INDEX schedules_due ON schedules (due);
-- the dashboard: what comes next
CREATE INDEX schedules_upcoming ON schedules (upcoming) WHERE upcoming IS NOT NULL;
-- a worker starts: the schedules that its app has declared
CREATE INDEX schedules_app ON schedules (app) WHERE app IS NOT NULL;

-- The outcome of each nominal time of a schedule. A long stretch of ticks with one outcome is one row.
CREATE TABLE ticks (
  schedule text COLLATE "C" NOT NULL,            -- id of the schedule
  nominal  bigint NOT NULL,                      -- the time that the spec names; of a trigger: when it was requested
  request  text COLLATE "C" NOT NULL DEFAULT '', -- empty for the clock; else the trigger or backfill that requested it
  source   text NOT NULL,                        -- where the tick comes from
  due      bigint NOT NULL,                      -- the time to act: the nominal time and the jitter
  outcome  text NOT NULL,                        -- pending and buffered wait; the others are final
  reason   text,                                 -- why, in words
  acted    bigint,                               -- when that was decided
  run      text COLLATE "C",                     -- id of the run that it started
  overlap  text,                                 -- the overlap policy that was requested instead of the schedule's
  until    bigint,                               -- the row stands for all ticks from nominal to here …
  count    bigint NOT NULL DEFAULT 1,            -- … which are so many
  PRIMARY KEY (schedule, nominal, request),
  CONSTRAINT ticks_source_check CHECK (source IN ('clock', 'catchup', 'trigger', 'backfill')),
  CONSTRAINT ticks_outcome_check CHECK (outcome IN ('pending', 'buffered', 'fired', 'late', 'skipped_overlap',
    'skipped_by_request', 'missed', 'paused', 'dropped', 'replaced', 'start_failed')),
  CONSTRAINT ticks_overlap_check CHECK (overlap IN ('skip', 'buffer_one', 'buffer_all', 'cancel_other',
    'terminate_other', 'allow_all'))
);
-- a pass of the scheduler: ticks that wait
CREATE INDEX ticks_waiting ON ticks (schedule, due) WHERE outcome IN ('pending', 'buffered');
-- the dashboard: ticks of a schedule that did not fire in time
CREATE INDEX ticks_not_fired ON ticks (schedule, nominal) WHERE outcome NOT IN ('fired', 'pending', 'buffered');
-- the dashboard: ticks of all schedules that started nothing
CREATE INDEX ticks_lost ON ticks (nominal) WHERE outcome IN ('missed', 'skipped_overlap', 'dropped', 'start_failed');

-- Stretches of time whose actions are, or were, taken on request.
CREATE TABLE backfills (
  id        text COLLATE "C" NOT NULL PRIMARY KEY, -- its ticks have it as request
  schedule  text COLLATE "C" NOT NULL,             -- id of the schedule
  since     bigint NOT NULL,                       -- where it begins; both ends belong to it
  until     bigint NOT NULL,                       -- where it ends
  overlap   text NOT NULL,                         -- the overlap policy of its ticks
  again     boolean NOT NULL DEFAULT false,        -- also times that have a run already
  created   bigint NOT NULL,                       -- when it was requested
  cursor    bigint NOT NULL,                       -- nominal time: everything up to here is done
  completed bigint,                                -- when all its ticks had been made, or when it was stopped
  stopped   boolean NOT NULL DEFAULT false,        -- an operator stopped it
  started   bigint NOT NULL DEFAULT 0,             -- ticks it has made
  skipped   bigint NOT NULL DEFAULT 0,             -- times that had a run already, or were left to the clock
  CONSTRAINT backfills_overlap_check CHECK (overlap IN ('skip', 'buffer_one', 'buffer_all', 'cancel_other',
    'terminate_other', 'allow_all'))
);
-- a pass of the scheduler: backfills that are not done
CREATE INDEX backfills_active ON backfills (schedule, id) WHERE completed IS NULL;
-- a pass of the scheduler: backfills that may have taken times ahead of the clock
CREATE INDEX backfills_reach ON backfills (schedule, until);

-- Functions of an app that are called when something happens to a schedule.
CREATE TABLE hooks (
  app       text NOT NULL,             -- the app whose code declares it
  event     text NOT NULL,             -- what has to happen
  function  text NOT NULL,             -- name of the function that is called
  kind      text NOT NULL,             -- what the function is
  parameter text NOT NULL,             -- its parameter that takes the alert
  after     bigint NOT NULL DEFAULT 0, -- microseconds from which a tick is late
  version   text NOT NULL,             -- the version of the app that declares it
  PRIMARY KEY (app, event, function),
  CONSTRAINT hooks_event_check CHECK (event IN ('missed', 'late', 'paused_by_failure')),
  CONSTRAINT hooks_kind_check CHECK (kind IN ('workflow', 'step', 'transaction'))
);

-- Named queues of runs with limits. A run in a queue that is not here waits until it is.
CREATE TABLE queues (
  name     text COLLATE "C" NOT NULL PRIMARY KEY, -- what runs name in queue
  paused   boolean NOT NULL DEFAULT false,        -- no new run begins
  version  text,                                  -- the version of the app that declared it last
  created  bigint NOT NULL,                       -- when it was made
  limits   json NOT NULL DEFAULT '{}',            -- JSON object: concurrency, worker_concurrency, rate, partition_concurrency … [as written]
  retry    json,                                  -- JSON object: how often and how soon its runs are retried [as written]
  declared json                                   -- JSON object: what the code declared last; NULL: made at run time [as written]
);

-- Limits of single partitions, where they differ from those of their queue.
CREATE TABLE queue_partitions (
  queue     text COLLATE "C" NOT NULL, -- name of the queue
  partition text COLLATE "C" NOT NULL, -- name of the partition
  limits    json NOT NULL,             -- JSON object, as in queues [as written]
  PRIMARY KEY (queue, partition)
);

-- What a rate counts: one row for each start within its window. A claim deletes older ones.
CREATE TABLE queue_starts (
  queue     text COLLATE "C" NOT NULL, -- name of the queue
  partition text COLLATE "C" NOT NULL, -- partition of the run; empty: none
  at        bigint NOT NULL            -- when it began
);
-- claim: starts of a queue within the window of its rate
CREATE INDEX queue_starts_at ON queue_starts (queue, at);

-- Processes that execute runs. A worker deletes its row when it stops; other workers delete those that died.
CREATE TABLE workers (
  id        text COLLATE "C" NOT NULL PRIMARY KEY, -- host, process id and a random part
  host      text NOT NULL,                         -- name of the machine
  boot      text NOT NULL,                         -- boot and pid namespace of that machine, in which pid means something
  pid       bigint NOT NULL,                       -- process id
  pid_start bigint NOT NULL,                       -- when that process began, in clock ticks since boot
  version   text NOT NULL,                         -- version of the app
  started   bigint NOT NULL,                       -- when it registered
  beat      bigint NOT NULL DEFAULT 0,             -- grows while it lives
  seen      bigint NOT NULL,                       -- when beat last grew
  functions jsonb NOT NULL,                        -- JSON object: name and fingerprint of each function it executes [searched for names]
  crontab   text NOT NULL DEFAULT '{}',            -- JSON object: the pattern of each crontab entry that it lists [compared as text]
  instances jsonb NOT NULL DEFAULT '{}'            -- JSON object: each method it executes, with the names of its instances [searched for names]
);

-- Versions of the app that have been seen.
CREATE TABLE versions (
  version    text NOT NULL PRIMARY KEY, -- a version of the app
  first_seen bigint NOT NULL            -- when a worker of that version first started
);

-- What operators did, on the dashboard and with commands: one row per action, written before the action.
CREATE TABLE actions (
  id      text COLLATE "C" NOT NULL PRIMARY KEY, -- sorts by time
  at      bigint NOT NULL,                       -- when it was requested
  who     text NOT NULL,                         -- the operator, as the dashboard or the command line knows them
  action  text NOT NULL,                         -- runs.cancel, schedules.pause …
  reason  text,                                  -- why, in the operator's words
  subject json NOT NULL,                         -- JSON list of the ids that it was about [as written]
  details json NOT NULL,                         -- JSON object: the other options of the request [as written]
  outcome json                                   -- JSON of the result; NULL: the process died before recording the result [as written]
);

-- How many runs of all functions ended in each minute, how long they took and how late they began.
CREATE TABLE activity (
  minute  bigint NOT NULL, -- when it begins
  measure text NOT NULL,   -- what micros adds up
  state   text NOT NULL,   -- how the runs ended
  count   bigint NOT NULL, -- how many runs
  micros  bigint NOT NULL, -- the measure of all of them together, in microseconds
  PRIMARY KEY (minute, measure, state),
  CONSTRAINT activity_measure_check CHECK (measure IN ('duration', 'lateness')),
  CONSTRAINT activity_state_check CHECK (state IN ('succeeded', 'failed', 'cancelled'))
);

-- The same by function and by class of durations, since the beginning.
CREATE TABLE activity_totals (
  workflow text COLLATE "C" NOT NULL, -- name of the function
  measure  text NOT NULL,             -- what micros adds up
  state    text NOT NULL,             -- how the runs ended
  bucket   bigint NOT NULL,           -- class of durations, from the shortest
  count    bigint NOT NULL,           -- how many runs
  micros   bigint NOT NULL,           -- the measure of all of them together, in microseconds
  PRIMARY KEY (workflow, measure, state, bucket),
  CONSTRAINT activity_totals_measure_check CHECK (measure IN ('duration', 'lateness')),
  CONSTRAINT activity_totals_state_check CHECK (state IN ('succeeded', 'failed', 'cancelled'))
);

-- Facts about this database as a whole, and sessions of the dashboard.
CREATE TABLE meta (
  key   text NOT NULL PRIMARY KEY, -- store; or session and a digest of the secret in a browser's cookie
  value text NOT NULL              -- of store: the name that this database has in others; of a session: JSON [not always JSON]
);

-- Two tables are written all the time: vacuum comes early, so that it has little to do, and does it without pauses. A run is claimed and
-- ends: half of each page is left for the second version of its rows, and pruning makes room for the third.
ALTER TABLE runs SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE steps SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
  autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The tables with times that people can read: timestamptz for microseconds since 1970, interval for numbers of microseconds.
-- A migration that changes a column drops its view and makes it again.
CREATE VIEW runs_view AS SELECT
  id,
  uid,
  priority,
  to_timestamp(due / 1e6) AS due,
  needs_attention,
  end_unprocessed,
  end_unreported,
  workflow,
  queue,
  partition,
  attributes,
  version,
  fingerprint,
  to_timestamp(attempt_started / 1e6) AS attempt_started,
  owner,
  state,
  to_timestamp(completed / 1e6) AS completed,
  reason,
  output,
  error,
  to_timestamp(started / 1e6) AS started,
  began_epoch,
  attempts,
  epoch,
  recoveries,
  generation,
  to_timestamp(deadline / 1e6) AS deadline,
  blocked,
  undo_reason,
  to_timestamp(created / 1e6) AS created,
  timeout * interval '1 microsecond' AS timeout,
  to_timestamp(scheduled_time / 1e6) AS scheduled_time,
  to_timestamp(debounce_until / 1e6) AS debounce_until,
  kind,
  parent,
  scheduled_by,
  schedule,
  key,
  last_request,
  forked_from,
  forked_at,
  retry,
  tick,
  input
FROM runs;

CREATE VIEW steps_view AS SELECT
  run,
  position,
  kind,
  name,
  seq,
  to_timestamp(started / 1e6) AS started,
  to_timestamp(completed / 1e6) AS completed,
  attempts,
  epoch,
  child,
  to_timestamp(due / 1e6) AS due,
  output,
  error,
  trail,
  discarded
FROM steps;

CREATE VIEW messages_view AS SELECT
  run,
  number,
  kind,
  topic,
  key,
  sender,
  to_timestamp(sent / 1e6) AS sent,
  to_timestamp(received / 1e6) AS received,
  position,
  to_timestamp(answered / 1e6) AS answered,
  body,
  answer,
  error
FROM messages;

CREATE VIEW events_view AS SELECT
  run,
  key,
  number,
  to_timestamp(set_at / 1e6) AS set_at,
  position,
  value
FROM events;

CREATE VIEW streams_view AS SELECT
  run,
  key,
  number,
  to_timestamp(set_at / 1e6) AS set_at,
  position,
  value
FROM streams;

CREATE VIEW logs_view AS SELECT
  number,
  run,
  to_timestamp(at / 1e6) AS at,
  level,
  logger,
  message,
  step,
  position,
  attempt,
  worker
FROM logs;

CREATE VIEW schedules_view AS SELECT
  id,
  workflow,
  to_timestamp(created / 1e6) AS created,
  to_timestamp(updated / 1e6) AS updated,
  revision,
  to_timestamp(cursor / 1e6) AS cursor,
  to_timestamp(due / 1e6) AS due,
  to_timestamp(upcoming / 1e6) AS upcoming,
  paused,
  to_timestamp(resume_at / 1e6) AS resume_at,
  note,
  pause_note,
  remaining,
  stopped,
  app,
  version,
  made_by,
  starts,
  missed,
  skipped,
  dropped,
  failures,
  fault,
  runs_since,
  attributes,
  spec,
  canonical,
  action,
  policy,
  declared,
  skips,
  input,
  last_result,
  last_failure
FROM schedules;

CREATE VIEW ticks_view AS SELECT
  schedule,
  to_timestamp(nominal / 1e6) AS nominal,
  request,
  source,
  to_timestamp(due / 1e6) AS due,
  outcome,
  reason,
  to_timestamp(acted / 1e6) AS acted,
  run,
  overlap,
  to_timestamp(until / 1e6) AS until,
  count
FROM ticks;

CREATE VIEW backfills_view AS SELECT
  id,
  schedule,
  to_timestamp(since / 1e6) AS since,
  to_timestamp(until / 1e6) AS until,
  overlap,
  again,
  to_timestamp(created / 1e6) AS created,
  to_timestamp(cursor / 1e6) AS cursor,
  to_timestamp(completed / 1e6) AS completed,
  stopped,
  started,
  skipped
FROM backfills;

CREATE VIEW queues_view AS SELECT
  name,
  paused,
  version,
  to_timestamp(created / 1e6) AS created,
  limits,
  retry,
  declared
FROM queues;

CREATE VIEW queue_starts_view AS SELECT
  queue,
  partition,
  to_timestamp(at / 1e6) AS at
FROM queue_starts;

CREATE VIEW workers_view AS SELECT
  id,
  host,
  boot,
  pid,
  pid_start,
  version,
  to_timestamp(started / 1e6) AS started,
  beat,
  to_timestamp(seen / 1e6) AS seen,
  functions,
  crontab,
  instances
FROM workers;

CREATE VIEW versions_view AS SELECT
  version,
  to_timestamp(first_seen / 1e6) AS first_seen
FROM versions;

CREATE VIEW actions_view AS SELECT
  id,
  to_timestamp(at / 1e6) AS at,
  who,
  action,
  reason,
  subject,
  details,
  outcome
FROM actions;

CREATE VIEW activity_view AS SELECT
  to_timestamp(minute / 1e6) AS minute,
  measure,
  state,
  count,
  micros * interval '1 microsecond' AS micros
FROM activity;

CREATE VIEW activity_totals_view AS SELECT
  workflow,
  measure,
  state,
  bucket,
  count,
  micros * interval '1 microsecond' AS micros
FROM activity_totals;

-- Functions for SQL and for other languages: a run is started, sent to or cancelled as part of the caller's transaction, with the checks and the
-- notifications of the library. docs/how-to/sql.md explains them. Those whose names begin with _ are not for callers.

-- a new uid: 45 bits of milliseconds, 10 of microseconds and 65 of chance, in the library's alphabet; it sorts by time
CREATE FUNCTION _new_uid(moment timestamptz) RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT string_agg(substr('0123456789abcdefghjkmnpqrstvwxyz', substring(bits FROM digit * 5 + 1 FOR 5)::integer + 1, 1), '' ORDER BY digit)
  FROM (
    SELECT (micros / 1000)::bit(45) || (micros % 1000)::integer::bit(10)
      || substring(('x' || left(random, 12) || right(random, 12))::bit(96) FROM 1 FOR 60) AS bits
    FROM (SELECT floor(extract(epoch FROM moment) * 1000000)::bigint AS micros, replace(gen_random_uuid()::text, '-', '') AS random) AS parts
  ) AS number, generate_series(0, 22) AS digit
$$;

CREATE FUNCTION _refuse(code text, message text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message;
END $$;

-- a text of 1 to 512 characters, not all of them blank, or an error
CREATE FUNCTION _check_text(what text, value text) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  IF value IS NULL OR btrim(value, E' \t\n\r\f\v') = '' OR length(value) > 512 THEN
    PERFORM _refuse('22023', what || ' is a text of 1 to 512 characters, not ' || coalesce(quote_literal(left(value, 40)), 'NULL'));
  END IF;
END $$;

-- wakes runs that wait: those without an owner are queued, the owners of the others have to be notified; the tokens for that
CREATE FUNCTION _wake(ids text[], now_us bigint) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  owners text;
  ready boolean;
BEGIN
  SELECT coalesce(bool_or(l.owner IS NULL AND l.completed IS NULL), false) INTO ready
    FROM (SELECT owner, completed FROM runs WHERE id = ANY (ids) ORDER BY id FOR NO KEY UPDATE) AS l;
  WITH woken AS (
    UPDATE runs SET
      needs_attention = owner IS NOT NULL,
      state = CASE WHEN owner IS NULL THEN 'queued' ELSE state END,
      due = CASE WHEN owner IS NULL THEN now_us ELSE due END
    WHERE id = ANY (ids)
      AND ((owner IS NULL AND state = 'waiting') OR (owner IS NOT NULL AND state IN ('running', 'waiting', 'cancelling')))
    RETURNING owner)
  SELECT string_agg(DISTINCT ' p=' || owner, '') INTO owners FROM woken WHERE owner IS NOT NULL;
  RETURN CASE WHEN ready THEN ' r' ELSE '' END || coalesce(owners, '');
END $$;

CREATE FUNCTION _notify(tokens text) RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT pg_notify('mainspring:' || current_schema(), 'sql' || CASE WHEN length(tokens) < 7000 THEN tokens ELSE ' r s e v p' END)
  WHERE tokens <> ''
$$;

-- whether the snapshot of this transaction hides what was committed since it began
CREATE FUNCTION _is_old() RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT current_setting('transaction_isolation') <> 'read committed'
$$;

-- Start a run; its id. `input` is JSON: an object of the arguments by name, or a list of them.
CREATE FUNCTION start(
  workflow text, input text DEFAULT '{}', id text DEFAULT NULL, queue text DEFAULT NULL, partition text DEFAULT NULL,
  priority bigint DEFAULT 0, key text DEFAULT NULL, key_mode text DEFAULT NULL, after interval DEFAULT NULL,
  at timestamptz DEFAULT NULL, timeout interval DEFAULT NULL, attributes jsonb DEFAULT '{}', version text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  moment CONSTANT timestamptz := clock_timestamp();
  now_us CONSTANT bigint := floor(extract(epoch FROM moment) * 1000000);
  new_uid CONSTANT text := _new_uid(moment);
  run_id CONSTANT text := coalesce(start.id, new_uid);
  mode CONSTANT text := coalesce(start.key_mode, 'replace');
  timeout_us bigint;
  due_us bigint := now_us;
  arguments json;
  holder record;
BEGIN
  PERFORM _check_text('the name of a workflow', start.workflow);
  IF start.id IS NOT NULL THEN
    PERFORM _check_text('a run id', start.id);
    IF start.id ~ '[/\u0001-\u001f\u007f]' THEN
      PERFORM _refuse('22023', 'the run id ' || quote_literal(start.id) || ' contains a control character, or a slash, which is kept for children');
    END IF;
  END IF;
  IF start.queue IS NOT NULL THEN
    PERFORM _check_text('a queue', start.queue);
    IF length(start.queue) > 200 OR start.queue ~ '[,\u0001-\u001f\u007f]' THEN
      PERFORM _refuse('22023', 'the name of a queue has 1 to 200 printable characters, none of them a comma');
    END IF;
  ELSIF start.partition IS NOT NULL THEN
    PERFORM _refuse('22023', 'a partition is a part of a queue; give queue => as well');
  END IF;
  IF start.partition IS NOT NULL THEN
    PERFORM _check_text('a partition', start.partition);
  END IF;
  IF start.key IS NOT NULL THEN
    PERFORM _check_text('a key', start.key);
  ELSIF start.key_mode IS NOT NULL THEN
    PERFORM _refuse('22023', 'key_mode says what to do about a run with the same key; give key => as well');
  END IF;
  IF mode NOT IN ('replace', 'preserve_run_at', 'unsafe_dedupe', 'return_existing', 'reject') THEN
    PERFORM _refuse('22023', 'key_mode is replace, preserve_run_at, unsafe_dedupe, return_existing or reject, not ' || quote_literal(mode));
  END IF;
  IF start.priority IS NULL THEN
    PERFORM _refuse('22023', 'priority is a whole number, smaller ones first, not NULL');
  END IF;
  IF start.after IS NOT NULL AND start.at IS NOT NULL THEN
    PERFORM _refuse('22023', 'give after => or at =>, not both');
  END IF;
  IF start.after < interval '0' THEN
    PERFORM _refuse('22023', 'after => ' || start.after || ' is negative');
  END IF;
  IF greatest(start.after, start.timeout) > interval '365000 days' THEN -- a time that is computed with it is shown as a datetime
    PERFORM _refuse('22023', 'the duration ' || greatest(start.after, start.timeout) || ' is longer than 365,000 days');
  END IF;
  timeout_us := floor(extract(epoch FROM start.timeout) * 1000000);
  IF timeout_us <= 0 THEN
    PERFORM _refuse('22023', 'a timeout must be longer than nothing');
  END IF;
  IF start.at < '0001-01-01 00:00:00+00' OR start.at >= '10000-01-01 00:00:00+00' THEN
    PERFORM _refuse('22023', 'at => ' || start.at || ' is not in the years 1 to 9999');
  END IF;
  IF start.version IS NOT NULL THEN
    PERFORM _check_text('a version', start.version);
  END IF;
  IF start.attributes IS NULL OR jsonb_typeof(start.attributes) <> 'object' THEN
    PERFORM _refuse('22023', 'attributes is a JSON object');
  END IF;
  arguments := start.input::json;
  IF json_typeof(arguments) = 'array' THEN
    arguments := '{"*":' || start.input || '}';
  ELSIF arguments IS NULL OR json_typeof(arguments) <> 'object' THEN
    PERFORM _refuse('22023', 'input is a JSON object of the arguments by name, or a list of them');
  ELSIF EXISTS (SELECT 1 FROM json_object_keys(arguments)) THEN -- with the star, a worker checks that all of them are parameters
    arguments := regexp_replace(start.input, '^\s*\{', '{"*":[],');
  END IF;
  IF start.after IS NOT NULL THEN
    due_us := now_us + floor(extract(epoch FROM start.after) * 1000000);
  ELSIF start.at IS NOT NULL THEN
    due_us := floor(extract(epoch FROM start.at) * 1000000);
  END IF;
  LOOP
    INSERT INTO runs (id, uid, workflow, kind, input, state, due, created, timeout, version, attributes, queue, priority, partition, key)
    VALUES (run_id, new_uid, start.workflow, 'workflow', arguments, CASE WHEN due_us > now_us THEN 'scheduled' ELSE 'queued' END, due_us,
      now_us, timeout_us, start.version, start.attributes, start.queue, start.priority, coalesce(start.partition, ''), start.key)
    ON CONFLICT DO NOTHING;
    EXIT WHEN FOUND;
    SELECT r.id, r.workflow INTO holder FROM runs AS r WHERE r.id = run_id;
    IF FOUND THEN
      IF holder.workflow <> start.workflow THEN
        PERFORM _refuse('23505', 'the run ' || quote_literal(run_id) || ' is one of ' || holder.workflow || ', not of ' || start.workflow);
      END IF;
      RETURN run_id;
    END IF;
    CONTINUE WHEN start.key IS NULL; -- the run that had the id was deleted meanwhile
    SELECT r.id, r.workflow, r.due, r.attempts, r.epoch > 0 AS claimed, r.attempt_started IS NOT NULL OR r.undo_reason IS NOT NULL
      OR (r.error IS NULL AND EXISTS (SELECT 1 FROM steps u WHERE u.run = r.id AND u.kind = 'undo')) AS begun
      INTO holder FROM runs AS r WHERE r.key = start.key AND r.completed IS NULL FOR NO KEY UPDATE;
    CONTINUE WHEN NOT FOUND;
    IF mode = 'reject' OR (mode IN ('unsafe_dedupe', 'return_existing') AND holder.workflow <> start.workflow) THEN
      PERFORM _refuse('23505', 'the unfinished run ' || quote_literal(holder.id) || ' has the key ' || quote_literal(start.key));
    ELSIF mode IN ('unsafe_dedupe', 'return_existing') THEN
      RETURN holder.id;
    ELSIF holder.begun THEN -- it goes on without the key, and is not retried
      UPDATE runs AS r SET key = NULL, retry = '{"attempts": 1}' WHERE r.id = holder.id;
      CONTINUE;
    END IF;
    IF mode = 'preserve_run_at' AND holder.attempts = 0 THEN
      due_us := holder.due;
    END IF;
    UPDATE runs AS r SET workflow = start.workflow, kind = 'workflow', input = arguments, due = due_us,
      state = CASE WHEN due_us <= now_us THEN 'queued' ELSE 'scheduled' END, timeout = timeout_us, deadline = NULL, version = start.version,
      attributes = start.attributes, queue = start.queue, priority = start.priority, partition = coalesce(start.partition, ''), retry = NULL,
      attempts = 0, error = NULL, reason = NULL, blocked = NULL, fingerprint = '', last_request = new_uid, started = NULL,
      recoveries = 0, generation = CASE WHEN holder.claimed THEN r.generation + 1 ELSE r.generation END
    WHERE r.id = holder.id;
    IF holder.claimed THEN -- what it recorded and received belongs to the old request, as START_OVER in store/sql/runs.py has it
      DELETE FROM steps AS s WHERE s.run = holder.id;
      UPDATE messages AS m SET received = NULL, position = NULL
        WHERE m.run = holder.id AND m.position IS NOT NULL AND m.kind = 'question' AND m.answered IS NULL;
      UPDATE messages AS m SET body = 'null', position = NULL
        WHERE m.run = holder.id AND m.position IS NOT NULL AND m.kind = 'message' AND m.key IS NOT NULL;
      DELETE FROM messages AS m WHERE m.run = holder.id AND m.position IS NOT NULL AND m.kind = 'message';
      DELETE FROM events AS e WHERE e.run = holder.id AND e.number < (
        SELECT max(l.number) FROM events l WHERE l.run = e.run AND l.key = e.key);
      UPDATE runs AS c SET parent = NULL, scheduled_by = holder.id WHERE c.id IN (
        SELECT r.id FROM runs AS r WHERE r.parent = holder.id AND r.completed IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    PERFORM _notify(' r');
    RETURN holder.id;
  END LOOP;
  PERFORM _notify(CASE
    WHEN due_us <= now_us AND start.workflow || coalesce(start.queue, '') ~ '^[A-Za-z0-9_.~-]+$'
    THEN ' r=' || start.workflow || ',' || coalesce(start.queue, '') || ',' -- workers that serve it; one notification for a whole transaction
    ELSE ' r' END);
  RETURN run_id;
END $$;

CREATE FUNCTION start(
  workflow text, input json, id text DEFAULT NULL, queue text DEFAULT NULL, partition text DEFAULT NULL,
  priority bigint DEFAULT 0, key text DEFAULT NULL, key_mode text DEFAULT NULL, after interval DEFAULT NULL,
  at timestamptz DEFAULT NULL, timeout interval DEFAULT NULL, attributes jsonb DEFAULT '{}', version text DEFAULT NULL
) RETURNS text LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT start($1, $2::text, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
$$;

CREATE FUNCTION start(
  workflow text, input jsonb, id text DEFAULT NULL, queue text DEFAULT NULL, partition text DEFAULT NULL,
  priority bigint DEFAULT 0, key text DEFAULT NULL, key_mode text DEFAULT NULL, after interval DEFAULT NULL,
  at timestamptz DEFAULT NULL, timeout interval DEFAULT NULL, attributes jsonb DEFAULT '{}', version text DEFAULT NULL
) RETURNS text LANGUAGE sql SET search_path FROM CURRENT AS $$
  SELECT start($1, $2::text, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
$$;

-- Send a message, which is JSON, to a run. A second one with the same key is not stored.
CREATE FUNCTION send(run text, topic text, message text, key text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  now_us CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000000);
  target record;
  waits boolean;
BEGIN
  PERFORM _check_text('the name of a topic', send.topic);
  IF send.key IS NOT NULL THEN
    PERFORM _check_text('a key', send.key);
  END IF;
  IF send.message IS NULL THEN
    PERFORM _refuse('22023', 'a message is JSON, not NULL; the JSON value is null');
  END IF;
  SELECT r.owner, r.completed INTO target FROM runs AS r WHERE r.id = send.run FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    PERFORM _refuse('P0002', 'there is no run ' || coalesce(quote_literal(send.run), 'NULL') || ' to send to, or no longer; nothing was sent');
  END IF;
  INSERT INTO messages (run, number, kind, topic, body, key, sent)
  SELECT send.run, coalesce((SELECT max(m.number) + 1 FROM messages AS m WHERE m.run = send.run), 0), 'message', send.topic,
    send.message::json, send.key, now_us
  ON CONFLICT DO NOTHING;
  SELECT EXISTS (SELECT 1 FROM steps AS s
    WHERE s.child = send.run AND s.kind = 'receive' AND s.name = send.topic AND s.completed IS NULL) INTO waits;
  IF waits OR _is_old() THEN
    PERFORM _notify(_wake(ARRAY[send.run], now_us));
  ELSIF target.owner IS NULL AND target.completed IS NULL THEN
    PERFORM _notify(' r'); -- a claim has passed over it meanwhile
  END IF;
END $$;

CREATE FUNCTION send(run text, topic text, message json, key text DEFAULT NULL) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT send($1, $2, $3::text, $4) $$;

CREATE FUNCTION send(run text, topic text, message jsonb, key text DEFAULT NULL) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$ SELECT send($1, $2, $3::text, $4) $$;

-- Cancel a run and its descendants: whether there was anything to cancel.
CREATE FUNCTION cancel(run text, reason text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  now_us CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000000);
  tree text[] := '{}';
  fresh text[];
  owners text;
  owned text[];
  undoing text[];
  ended text[];
  tokens text := '';
BEGIN
  IF cancel.reason = 'timeout' THEN
    PERFORM _refuse('22023', 'the reason timeout is that of runs whose time is over; say it in other words');
  END IF;
  LOOP -- until nothing new turns up: a locked run starts no more children
    WITH RECURSIVE family (id) AS (
      SELECT r.id FROM runs AS r WHERE r.id = cancel.run
      UNION SELECT child.id FROM family CROSS JOIN LATERAL (
        SELECT r.id FROM runs AS r WHERE r.parent = family.id OFFSET 0) AS child)
    SELECT array_agg(family.id) INTO fresh FROM family WHERE family.id <> ALL (tree);
    EXIT WHEN fresh IS NULL;
    PERFORM 1 FROM runs AS r WHERE r.id = ANY (fresh) ORDER BY r.id FOR NO KEY UPDATE;
    tree := tree || fresh;
  END LOOP;
  WITH changed AS (
    UPDATE runs AS r SET state = 'cancelling', reason = cancel.reason, needs_attention = true
    WHERE r.id = ANY (tree) AND r.owner IS NOT NULL AND r.kind = 'workflow' AND r.state IN ('running', 'waiting')
    RETURNING r.id, r.owner)
  SELECT array_agg(id), string_agg(DISTINCT ' p=' || owner, '') INTO owned, owners FROM changed;
  WITH changed AS (
    UPDATE runs AS r SET state = 'queued', reason = cancel.reason, undo_reason = coalesce(cancel.reason, ''), due = now_us
    WHERE r.id = ANY (tree) AND r.owner IS NULL AND r.state IN ('queued', 'waiting') AND r.undo_reason IS NULL
      AND EXISTS (SELECT 1 FROM steps AS u WHERE u.run = r.id AND u.kind = 'undo')
    RETURNING r.id)
  SELECT array_agg(id) INTO undoing FROM changed;
  WITH changed AS (
    UPDATE runs AS r SET state = 'cancelled', reason = cancel.reason, completed = now_us, owner = NULL, needs_attention = false,
      end_unreported = true
    WHERE r.id = ANY (tree) AND r.state IN ('scheduled', 'queued', 'running', 'waiting') AND r.undo_reason IS NULL
      AND (r.owner IS NULL OR r.kind <> 'workflow')
    RETURNING r.id)
  SELECT array_agg(id) INTO ended FROM changed;
  IF undoing IS NOT NULL THEN
    tokens := ' r';
  END IF;
  IF ended IS NOT NULL THEN
    SELECT array_agg(DISTINCT waiting.run) INTO fresh FROM (
      SELECT s.run FROM steps AS s WHERE s.completed IS NULL AND s.child = ANY (ended)
      UNION SELECT r.parent FROM runs AS r WHERE _is_old() AND r.parent IS NOT NULL AND r.id = ANY (ended)) AS waiting;
    tokens := tokens || ' s e' || coalesce(_wake(fresh, now_us), '');
  END IF;
  PERFORM _notify(tokens || coalesce(owners, ''));
  RETURN coalesce(cancel.run = ANY (owned), false) OR coalesce(cancel.run = ANY (undoing), false)
    OR coalesce(cancel.run = ANY (ended), false);
END $$;
