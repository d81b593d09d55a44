-- What an operator changed stays until the declaration changes, so what was declared last is kept beside it.
ALTER TABLE schedules ADD COLUMN declared TEXT;      -- JSON object: the definition as code or a crontab declared it last; NULL: made at run time
-- Why a schedule is paused is not its note.
ALTER TABLE schedules ADD COLUMN pause_note TEXT;    -- what was said when it was last paused or resumed
UPDATE schedules SET pause_note = note, note = NULL WHERE paused;
-- Backfills that may have taken times which the clock has yet to come to.
CREATE INDEX backfills_reach ON backfills (schedule, until);
