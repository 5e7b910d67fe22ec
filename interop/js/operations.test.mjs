// Every operation of the official JavaScript clients, over each binding and protocol version.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, test } from 'node:test';

import { BINDINGS, ADAPTERS, fold, textOf, texts } from './clients.mjs';
import { start } from './gateway.mjs';

// No test takes longer, not even the first turn of an OpenCode that has just started.
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

function operations(adapter, binding) {
  const connect = (options) => adapter.connect(gateway, binding, options);
  const state = (task) => adapter.state(task.status);
  const it = (name, body) => test(name, { timeout }, body);

  it('reads the extended card', async () => {
    const client = await connect();
    const card = await adapter.card(client);
    assert.ok(card.name);
    assert.ok(card.skills.length > 0);
    assert.equal(card.capabilities.streaming, true);
    assert.ok(card.capabilities.extensions.length > 0);
  });

  it('finds the card of a base URL without a slash at its end', async () => {
    for (const base of ['/a2a/0.3', '/a2a/1.0']) {
      const client = await connect({ base });
      assert.equal(state(await adapter.send(client, 'scn:text n=1')), 'completed');
    }
  });

  it('sends, waits for the end, and gets the same task', async () => {
    const client = await connect();
    const task = await adapter.send(client, 'scn:text n=4 text="ahoy from the demo model"');
    assert.equal(state(task), 'completed');
    assert.deepEqual(texts(task), ['ahoy from the demo model']);
    assert.equal(task.history.length, 1);
    assert.deepEqual(await adapter.get(client, task.id), task);
    assert.equal((await adapter.get(client, task.id, 1)).history.length, 1);
  });

  it('streams what folds into the task', async () => {
    const client = await connect();
    const events = await gather(adapter.stream(client, 'scn:reason rn=2 n=2 text="thought through"'));
    const folded = fold(adapter, binding, events);
    const stored = await adapter.get(client, folded.id);
    assert.equal(state(folded), 'completed');
    assert.equal(texts(stored).join(''), 'Thought 1 of 2. Thought 2 of 2. thought through');
    assert.equal(texts(stored).length, adapter.old ? 1 : 2);
    assert.deepEqual([texts(folded), state(folded)], [texts(stored), state(stored)]);
    // Clients of 0.3 read the answer from the status of the task; in the stream it came as an artifact.
    const said = stored.status.message?.parts.map((part) => part.text).join('');
    assert.equal(said, adapter.old ? 'thought through' : undefined);
    if (adapter.old && binding === 'JSONRPC') {
      const chunks = events.filter((event) => adapter.kind(event) === 'artifactUpdate');
      const marked = chunks.map((event) => adapter.value(event).lastChunk ?? false);
      assert.deepEqual(marked, marked.map((_, at) => at === marked.length - 1));
    }
    if (adapter.final) {
      const finals = events.filter((event) => adapter.kind(event) === 'statusUpdate').map((event) => event.final);
      assert.deepEqual(finals, finals.map((_, at) => at === finals.length - 1));
    }
  });

  it('continues in a context', async () => {
    const client = await connect();
    const first = await adapter.send(client, 'scn:text n=1');
    const second = await adapter.send(client, 'scn:text n=2', { contextId: first.contextId });
    assert.equal(state(second), 'completed');
    assert.equal(second.contextId, first.contextId);
    assert.notEqual(second.id, first.id);
    if (adapter.lists) {
      const listed = await adapter.list(client, { contextId: first.contextId, pageSize: 1 });
      assert.deepEqual(listed.tasks.map((task) => task.id), [second.id]);
      const { contextId } = first;
      const rest = await adapter.list(client, { contextId, pageSize: 1, pageToken: listed.nextPageToken });
      assert.deepEqual(rest.tasks.map((task) => task.id), [first.id]);
    }
  });

  for (const answered of ['send', 'stream']) {
    it(`answers an ask by a plain message (${answered})`, async () => {
      const client = await connect();
      const waiting = await adapter.send(client, 'scn:question q="Which way?" options="Left|Right" scn:text n=2');
      assert.equal(state(waiting), 'input-required');
      const asked = waiting.status.message;
      assert.match(textOf(asked.parts), /Which way\? \(Left, Right\)/);
      const ids = { taskId: waiting.id, contextId: waiting.contextId };
      const done =
        answered === 'send'
          ? await adapter.send(client, 'Right', ids)
          : fold(adapter, binding, await gather(adapter.stream(client, 'Right', ids)));
      assert.deepEqual([done.id, state(done)], [waiting.id, 'completed']);
      const stored = await adapter.get(client, done.id);
      assert.deepEqual(stored.history.slice(1).map((message) => textOf(message.parts)), ['Right']);
      assert.match(texts(stored).join(''), /anchor/);
    });
  }

  it('does not wait when it polls, resubscribes in the middle, and cancels', async () => {
    const polling = await connect({ polling: true });
    const client = await connect();
    const task = await adapter.send(polling, 'scn:forever delay=20');
    assert.ok(['submitted', 'working'].includes(state(task)), JSON.stringify(task));

    const events = [];
    let canceled;
    for await (const event of adapter.resubscribe(client, task.id)) {
      events.push(event);
      if (adapter.kind(event) === 'artifactUpdate') canceled ??= adapter.cancel(polling, task.id);
    }
    assert.equal(state(await canceled), 'canceled');
    const folded = fold(adapter, binding, events);
    const stored = await adapter.get(client, task.id);
    assert.deepEqual([folded.id, folded.status], [task.id, stored.status]);
    assert.deepEqual(texts(folded), texts(stored));
    assert.equal(state(stored), 'canceled');

    // A second cancel returns the task in 0.3 and is refused in 1.0.
    if (adapter.old) assert.deepEqual((await adapter.cancel(client, task.id)).status, stored.status);
    else await assert.rejects(adapter.cancel(client, task.id), adapter.refused('TaskNotCancelableError'));
  });

  it('resubscribes after the end', async () => {
    const client = await connect();
    const task = await adapter.send(client, 'scn:text n=2');
    const again = gather(adapter.resubscribe(client, task.id));
    if (adapter.old) {
      const events = await again;
      assert.deepEqual(events.map(adapter.kind), ['task']);
      assert.deepEqual(texts(adapter.value(events[0])), texts(task));
    } else {
      await assert.rejects(again, adapter.refused('UnsupportedOperationError'));
    }
  });

  it('reports an unknown task', async () => {
    const client = await connect();
    const id = randomUUID();
    const unknown = adapter.refused('TaskNotFoundError');
    const refusedStream = adapter.streamRefused?.(binding) || unknown;
    for (const [call, error] of [
      [() => adapter.get(client, id), unknown],
      [() => adapter.cancel(client, id), unknown],
      [() => adapter.send(client, 'hello', { taskId: id }), unknown],
      [() => gather(adapter.stream(client, 'hello', { taskId: id })), refusedStream],
      [() => gather(adapter.resubscribe(client, id)), refusedStream],
    ]) {
      await assert.rejects(call, error, `${call}`);
    }
  });

  it('reports an ended task', async () => {
    const client = await connect();
    const { id } = await adapter.send(client, 'scn:text n=1');
    await assert.rejects(adapter.cancel(client, id), adapter.refused('TaskNotCancelableError'));
    await assert.rejects(adapter.send(client, 'more', { taskId: id }), adapter.refused('UnsupportedOperationError'));
  });

  it('creates, reads, lists and deletes a push configuration', async () => {
    const client = await connect();
    const { push } = adapter;
    const authentication = { scheme: 'Bearer', credentials: 'planted-credentials' };
    // Nothing listens there: this test looks at the configurations only.
    const about = { id: 'hook', url: 'http://127.0.0.1:1025/hook', token: 'planted-token', authentication };
    const task = await push.send(client, 'scn:text n=1', about);
    const { url } = about;
    const hidden = { token: undefined, credentials: undefined };
    const expected = (id) => ({ taskId: task.id, id, url, scheme: 'Bearer', ...hidden });
    assert.deepEqual(await push.get(client, task.id, 'hook'), expected('hook'));
    const created = await push.create(client, { ...about, taskId: task.id, id: 'second' });
    assert.deepEqual(created, expected('second'));
    assert.deepEqual(await push.list(client, task.id), [expected('hook'), expected('second')]);
    await push.delete(client, task.id, 'hook');
    assert.deepEqual(await push.list(client, task.id), [expected('second')]);
    await assert.rejects(push.get(client, task.id, 'hook'), adapter.refused('TaskNotFoundError'));
  });

  it('reports a wrong token', async () => {
    const client = await connect({ token: 'not-the-token' });
    await assert.rejects(adapter.send(client, 'hello'), /credential is not valid/);
  });
}

for (const adapter of ADAPTERS) {
  for (const binding of BINDINGS) {
    describe(`${adapter.name}, ${binding}`, () => operations(adapter, binding));
  }
}
