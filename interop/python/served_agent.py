"""The gateway that serves the agent of the matrix. Another program runs it, and restarts it between two runs of a path.

See `longshore/tests/e2e/acp_matrix.rs`.
"""

import dataclasses
import json
import os
import pathlib


@dataclasses.dataclass
class ServedAgent:
    """A gateway that runs already, and the agent behind it."""

    url: str
    token: str
    workspace: pathlib.Path
    # What makes the agent touch the file `FILE`, for which it needs a permission.
    touch: str
    # A file of this client for what the path knows before the restart.
    notes: pathlib.Path

    def note(self, binding: str, context: str) -> None:
        notes = json.loads(self.notes.read_text()) if self.notes.exists() else {}
        self.notes.write_text(json.dumps({**notes, binding: context}))

    def context(self, binding: str) -> str:
        return json.loads(self.notes.read_text())[binding]

    def stop(self) -> None:
        """Does nothing: the program that started the gateway ends it."""


def served() -> ServedAgent | None:
    """The gateway of the environment, if there is one."""
    told = os.environ.get('LONGSHORE_SERVED_AGENT')
    if told is None:
        return None
    about = json.loads(told)
    paths = {name: pathlib.Path(about.pop(name)) for name in ('workspace', 'notes')}
    return ServedAgent(**about, **paths)
