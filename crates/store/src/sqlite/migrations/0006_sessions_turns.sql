-- The head and its epoch follow from the log. So an append of output writes
-- only the page of the log, not that of the task's row as well. For a task that is over, `summary_seq` is the head.
ALTER TABLE tasks DROP COLUMN head;
ALTER TABLE tasks DROP COLUMN epoch;

-- The task of a prompt.
CREATE INDEX tasks_by_prompt ON tasks (session, prompt) WHERE prompt IS NOT NULL;

-- The turns that messages have joined. Other turns are not in this index.
CREATE INDEX tasks_joined ON tasks (session) WHERE joined IS NOT NULL;

-- The contexts of a session, by the time of their binding.
CREATE INDEX bindings_by_session ON bindings (session, owner, at, context);

-- `at` is from now on the time when a session was last bound, claimed or prompted. Before, it was the time of the first binding.
UPDATE sessions SET at = max(at,
    coalesce((SELECT max(bindings.at) FROM bindings WHERE bindings.session = sessions.id), at),
    coalesce((SELECT max(tasks.status_at) FROM tasks
              WHERE tasks.session = sessions.id AND tasks.prompt IS NOT NULL), at));
CREATE INDEX sessions_by_use ON sessions (at, id);
