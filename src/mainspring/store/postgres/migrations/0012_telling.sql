-- Ends of runs that no worker had in hand, which those who asked with `app.on` have yet to be told of.
ALTER TABLE runs ADD COLUMN untold boolean NOT NULL DEFAULT false;
CREATE INDEX runs_untold ON runs (completed) WHERE untold;
