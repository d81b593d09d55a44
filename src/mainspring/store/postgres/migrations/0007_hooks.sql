-- Functions of the app that are told when something happens to a schedule.
CREATE TABLE hooks (
  app       text NOT NULL,               -- the app whose code says so
  event     text NOT NULL,               -- missed, late or paused_by_failure
  function  text NOT NULL,               -- the function that is told
  kind      text NOT NULL,               -- workflow, step or transaction
  parameter text NOT NULL,               -- its parameter that takes the alert
  after     bigint NOT NULL DEFAULT 0,  -- microseconds: how late is late
  version   text NOT NULL,               -- the version that declares it
  PRIMARY KEY (app, event, function)
);
