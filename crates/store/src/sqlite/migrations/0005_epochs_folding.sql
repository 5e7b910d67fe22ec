-- The last epoch that may have been used. Each opening of the file takes a greater one.
CREATE TABLE epochs (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    last INTEGER NOT NULL CHECK (last >= 0)
) STRICT;
INSERT INTO epochs (only, last) VALUES (1, 0);

-- The epoch of each event, and of the newest event of each task. 0: written before epochs existed.
ALTER TABLE events ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;

-- Whether the task is over and its log is completely folded.
ALTER TABLE tasks ADD COLUMN folded INTEGER NOT NULL DEFAULT 0 CHECK (folded IN (0, 1));

-- Finished tasks by age, folded and not: what can be folded and what can be removed. An append without a status does not change it.
CREATE INDEX tasks_over ON tasks (folded, status_at) WHERE state IN ('completed', 'failed', 'canceled', 'rejected');
