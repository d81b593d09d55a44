-- Functions of the app that are told when something happens to a schedule.
CREATE TABLE hooks (
  app       TEXT NOT NULL,               -- the app whose code says so
  event     TEXT NOT NULL,               -- missed, late or paused_by_failure
  function  TEXT NOT NULL,               -- the function that is told
  kind      TEXT NOT NULL,               -- workflow, step or transaction
  parameter TEXT NOT NULL,               -- its parameter that takes the alert
  after     INTEGER NOT NULL DEFAULT 0,  -- microseconds: how late is late
  version   TEXT NOT NULL,               -- the version that declares it
  PRIMARY KEY (app, event, function)
);
