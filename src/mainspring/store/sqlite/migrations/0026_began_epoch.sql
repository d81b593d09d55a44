-- The epoch in which the present attempt of a run began. Epochs only ever grow: a claim that is handed back before anything was executed
-- must not be mistaken for a later one of the same worker.
ALTER TABLE runs ADD COLUMN began_epoch INTEGER NOT NULL DEFAULT 1; -- in later ones it goes on
