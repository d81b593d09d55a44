-- Functions that were scheduled with run_after or run_at are runs like all others, with the time that was asked for.
ALTER TABLE runs ADD COLUMN scheduled_time INTEGER;
CREATE INDEX runs_functions_live ON runs (scheduled_time, uid) WHERE scheduled_time IS NOT NULL AND completed IS NULL;
CREATE INDEX runs_functions_live_name ON runs (workflow, scheduled_time, uid)
  WHERE scheduled_time IS NOT NULL AND completed IS NULL;
CREATE INDEX runs_functions_ended ON runs (scheduled_time, uid) WHERE scheduled_time IS NOT NULL AND completed IS NOT NULL;
CREATE INDEX runs_functions_ended_name ON runs (workflow, scheduled_time, uid)
  WHERE scheduled_time IS NOT NULL AND completed IS NOT NULL;
CREATE VIEW scheduled_functions AS
  SELECT id, created / 1000.0 AS created, workflow AS name, json_array(json(input)) AS args,
    scheduled_time / 1000.0 AS scheduled_time, completed / 1000.0 AS completed_time,
    CASE WHEN state IN ('scheduled', 'queued') THEN 'pending' WHEN state IN ('running', 'waiting') THEN 'in_progress'
      WHEN state = 'succeeded' THEN 'success' WHEN state = 'failed' THEN 'failed' ELSE 'canceled' END AS state,
    CASE WHEN state = 'failed' THEN coalesce(json_extract(error, '$.message'), reason) END AS error
  FROM runs WHERE scheduled_time IS NOT NULL;
