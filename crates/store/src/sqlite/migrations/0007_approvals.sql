-- The tool call that waits for the answer to an ask.
ALTER TABLE interrupts ADD COLUMN call TEXT;
