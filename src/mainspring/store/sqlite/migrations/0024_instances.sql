-- Which instances a worker has: a run of a method is left to workers that have its instance.
ALTER TABLE workers ADD COLUMN instances TEXT NOT NULL DEFAULT '{}'; -- JSON object: each method it executes, with the names of its instances
