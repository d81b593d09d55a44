-- What waits, by the name of its function: a worker that does not know some of these functions must not look at all their runs.
CREATE INDEX runs_name ON runs (workflow, queue, partition, priority, due, uid) WHERE state = 'queued';
