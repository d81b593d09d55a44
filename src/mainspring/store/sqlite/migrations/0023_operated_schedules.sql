-- Backfills that may have taken times which the clock has yet to come to.
CREATE INDEX backfills_reach ON backfills (schedule, until);
