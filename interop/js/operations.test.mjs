// Every operation that the official clients for JavaScript offer (push excepted), over each binding, on each line.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, test } from 'node:test';

import { BINDINGS, LINES, fold, textOf, texts } from './clients.mjs';
import { start } from './gateway.mjs';

// No test takes longer, not even the first turn of an OpenCode that has just been started.
const timeout = 60_000;

let gateway;
before(async () => {
  gateway = await start();
});
after(() => gateway?.stop());

const gather = async (stream) => {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
};

function operations(line, binding) {
  const connect = (options) => line.connect(gateway, binding, options);
  const state = (task) => line.state(task.status);
  const it = (name, body) => test(name, { timeout }, body);

  it('reads the extended card', async () => {
    const client = await connect();
    const card = await line.card(client);
    assert.ok(card.name);
    assert.ok(card.skills.length > 0);
    assert.equal(card.capabilities.streaming, true);
    assert.ok(card.capabilities.extensions.length > 0);
  });

  it('sends, waits for the end, and gets the same task', async () => {
    const client = await connect();
    const task = await line.send(client, 'scn:text n=4 text="ahoy from the demo model"');
    assert.equal(state(task), 'completed');
    assert.deepEqual(texts(task), ['ahoy from the demo model']);
    assert.equal(task.history.length, 1);
    assert.deepEqual(await line.get(client, task.id), task);
    assert.equal((await line.get(client, task.id, 1)).history.length, 1);
  });

  it('streams what folds into the task', async () => {
    const client = await connect();
    const events = await gather(line.stream(client, 'scn:reason rn=2 n=2 text="thought through"'));
    const folded = fold(line, binding, events);
    const stored = await line.get(client, folded.id);
    assert.equal(state(folded), 'completed');
    assert.equal(texts(stored).join(''), 'Thought 1 of 2. Thought 2 of 2. thought through');
    assert.equal(texts(stored).length, line.old ? 1 : 2);
    assert.deepEqual([texts(folded), state(folded)], [texts(stored), state(stored)]);
    // Clients of 0.3 look for the answer in the status of the task. The stream has told it.
    const said = stored.status.message?.parts.map((part) => part.text).join('');
    assert.equal(said, line.old ? 'thought through' : undefined);
    if (line.final) {
      const finals = events.filter((event) => line.kind(event) === 'statusUpdate').map((event) => event.final);
      assert.deepEqual(finals, finals.map((_, at) => at === finals.length - 1));
    }
  });

  it('goes on in a context', async () => {
    const client = await connect();
    const first = await line.send(client, 'scn:text n=1');
    const second = await line.send(client, 'scn:text n=2', { contextId: first.contextId });
    assert.equal(state(second), 'completed');
    assert.equal(second.contextId, first.contextId);
    assert.notEqual(second.id, first.id);
    if (line.lists) {
      const listed = await line.list(client, { contextId: first.contextId, pageSize: 1 });
      assert.deepEqual(listed.tasks.map((task) => task.id), [second.id]);
      const { contextId } = first;
      const rest = await line.list(client, { contextId, pageSize: 1, pageToken: listed.nextPageToken });
      assert.deepEqual(rest.tasks.map((task) => task.id), [first.id]);
    }
  });

  for (const answered of ['send', 'stream']) {
    it(`answers an ask by a plain message (${answered})`, async () => {
      const client = await connect();
      const waiting = await line.send(client, 'scn:question q="Which way?" options="Left|Right" scn:text n=2');
      assert.equal(state(waiting), 'input-required');
      const asked = waiting.status.message;
      assert.match(textOf(asked.parts), /Which way\? \(Left, Right\)/);
      const ids = { taskId: waiting.id, contextId: waiting.contextId };
      const done =
        answered === 'send'
          ? await line.send(client, 'Right', ids)
          : fold(line, binding, await gather(line.stream(client, 'Right', ids)));
      assert.deepEqual([done.id, state(done)], [waiting.id, 'completed']);
      const stored = await line.get(client, done.id);
      assert.deepEqual(stored.history.slice(1).map((message) => textOf(message.parts)), ['Right']);
      assert.match(texts(stored).join(''), /anchor/);
    });
  }

  it('does not wait when it polls, resubscribes in the middle, and cancels', async () => {
    const polling = await connect({ polling: true });
    const client = await connect();
    const task = await line.send(polling, 'scn:forever delay=20');
    assert.ok(['submitted', 'working'].includes(state(task)), JSON.stringify(task));

    const events = [];
    let canceled;
    for await (const event of line.resubscribe(client, task.id)) {
      events.push(event);
      if (line.kind(event) === 'artifactUpdate') canceled ??= line.cancel(polling, task.id);
    }
    assert.equal(state(await canceled), 'canceled');
    const folded = fold(line, binding, events);
    const stored = await line.get(client, task.id);
    assert.deepEqual([folded.id, folded.status], [task.id, stored.status]);
    assert.deepEqual(texts(folded), texts(stored));
    assert.equal(state(stored), 'canceled');

    // Said again, 0.3 answers with the task and 1.0 refuses.
    if (line.old) assert.deepEqual((await line.cancel(client, task.id)).status, stored.status);
    else await assert.rejects(line.cancel(client, task.id), line.refused('TaskNotCancelableError'));
  });

  it('resubscribes after the end', async () => {
    const client = await connect();
    const task = await line.send(client, 'scn:text n=2');
    const again = gather(line.resubscribe(client, task.id));
    if (line.old) {
      const events = await again;
      assert.deepEqual(events.map(line.kind), ['task']);
      assert.deepEqual(texts(line.value(events[0])), texts(task));
    } else {
      await assert.rejects(again, line.refused('UnsupportedOperationError'));
    }
  });

  it('is told that a task is unknown', async () => {
    const client = await connect();
    const id = randomUUID();
    const unknown = line.refused('TaskNotFoundError');
    const untold = line.streamRefused?.(binding) || unknown;
    for (const [call, told] of [
      [() => line.get(client, id), unknown],
      [() => line.cancel(client, id), unknown],
      [() => line.send(client, 'hello', { taskId: id }), unknown],
      [() => gather(line.stream(client, 'hello', { taskId: id })), untold],
      [() => gather(line.resubscribe(client, id)), untold],
    ]) {
      await assert.rejects(call, told, `${call}`);
    }
  });

  it('is told that a task has ended', async () => {
    const client = await connect();
    const { id } = await line.send(client, 'scn:text n=1');
    await assert.rejects(line.cancel(client, id), line.refused('TaskNotCancelableError'));
    await assert.rejects(line.send(client, 'more', { taskId: id }), line.refused('UnsupportedOperationError'));
  });

  it('is told that its token is wrong', async () => {
    const client = await connect({ token: 'not-the-token' });
    await assert.rejects(line.send(client, 'hello'), /needs a valid credential/);
  });
}

for (const line of LINES) {
  for (const binding of BINDINGS) {
    describe(`${line.name}, ${binding}`, () => operations(line, binding));
  }
}
