-- The answers that the agent offers to a permission. NULL: the words `once`, `always` and `reject`.
ALTER TABLE interrupts ADD COLUMN options TEXT;
