-- The log tells where it ends, and under which number its newest event was written. So an append of output writes the
-- page of the log alone, and not that of the task as well. Of a task that is over, `summary_seq` is the end.
ALTER TABLE tasks DROP COLUMN head;
ALTER TABLE tasks DROP COLUMN epoch;

-- Which task a prompt runs.
CREATE INDEX tasks_by_prompt ON tasks (session, prompt) WHERE prompt IS NOT NULL;

-- The turns that messages have joined. The others cost nothing there.
CREATE INDEX tasks_joined ON tasks (session) WHERE joined IS NOT NULL;

-- The contexts of a session, by when they were bound to it.
CREATE INDEX bindings_by_session ON bindings (session, owner, at, context);

-- `at` is from now on when a session was bound, claimed or prompted last. Before, it was when it was bound first.
UPDATE sessions SET at = max(at,
    coalesce((SELECT max(bindings.at) FROM bindings WHERE bindings.session = sessions.id), at),
    coalesce((SELECT max(tasks.status_at) FROM tasks
              WHERE tasks.session = sessions.id AND tasks.prompt IS NOT NULL), at));
CREATE INDEX sessions_by_use ON sessions (at, id);
