-- Ended runs by name and age, so that old ones are forgotten without looking at the others.
CREATE INDEX runs_ended ON runs (workflow, completed) WHERE completed IS NOT NULL AND scheduled_time IS NULL;
CREATE INDEX runs_functions_over ON runs (workflow, completed) WHERE completed IS NOT NULL AND scheduled_time IS NOT NULL;
