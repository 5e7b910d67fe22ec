// The path of interop/python/path_of_agent.py, with the JavaScript clients of both versions.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { ADAPTERS, BINDINGS, fold, texts } from './clients.mjs';

// A path has a dozen turns, on a machine that runs other paths at the same time.
const timeout = 300_000;

// A gateway that runs already, and the agent behind it: see interop/python/served_agent.py.
const served = JSON.parse(process.env.LONGSHORE_SERVED_AGENT);

const notes = () => (existsSync(served.notes) ? JSON.parse(readFileSync(served.notes, 'utf8')) : {});

const gather = async (stream) => {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
};

// What the agent said. In 0.3 one artifact holds the tool calls too, but not as text.
function said(adapter, task) {
  const isSaid = (part) => (part.metadata?.shared?.stream?.block_type ?? 'text') === 'text';
  if (!adapter.old) return texts({ artifacts: task.artifacts.filter(({ name }) => name === 'text') }).join('');
  const parts = (task.artifacts ?? []).flatMap((artifact) => artifact.parts);
  return parts.filter(isSaid).map((part) => part.text ?? '').join('');
}

// Reads a stream up to its first text, and leaves it.
async function leave(adapter, stream) {
  for await (const event of stream) {
    if (adapter.kind(event) === 'artifactUpdate') return adapter.value(event).taskId;
  }
  throw new Error('the stream ended without a text');
}

async function beforeRestart(adapter, binding) {
  const client = await adapter.connect(served, binding);
  const polling = await adapter.connect(served, binding, { polling: true });
  const ended = (task, state, text) => {
    assert.equal(adapter.state(task.status), state, JSON.stringify(task));
    if (text !== undefined) assert.equal(said(adapter, task), text, JSON.stringify(task));
  };

  const sent = await adapter.send(client, 'scn:text n=3 text="The tide turns at six."');
  ended(sent, 'completed', 'The tide turns at six.');
  const { contextId } = sent;

  const prompt = 'scn:text n=6 text="Anchors aweigh, and off we go."';
  const streamed = fold(adapter, binding, await gather(adapter.stream(client, prompt, { contextId })));
  const stored = await adapter.get(client, streamed.id);
  ended(stored, 'completed', 'Anchors aweigh, and off we go.');
  ended(streamed, 'completed', 'Anchors aweigh, and off we go.');

  // Loses a stream, and reads the rest from a new one.
  const lost = await leave(adapter, adapter.stream(client, 'scn:text n=60 delay=50', { contextId }));
  const resumed = fold(adapter, binding, await gather(adapter.resubscribe(client, lost)));
  ended(resumed, 'completed', said(adapter, await adapter.get(client, lost)));

  const running = await adapter.send(polling, 'scn:forever delay=20', { contextId });
  await leave(adapter, adapter.resubscribe(client, running.id));
  ended(await adapter.cancel(client, running.id), 'canceled');

  for (const [answer, isAllowed] of [['once', true], ['reject', false]]) {
    const name = randomUUID();
    const waiting = await adapter.send(client, served.touch.replace('FILE', name), { contextId });
    ended(waiting, 'input-required');
    assert.ok(!existsSync(join(served.workspace, name)));
    const answered = await adapter.send(client, answer, { taskId: waiting.id, contextId });
    assert.equal(answered.id, waiting.id);
    ended(answered, 'completed');
    assert.equal(existsSync(join(served.workspace, name)), isAllowed, answer);
  }

  ended(await adapter.send(client, 'scn:text n=2 text="once more"', { contextId }), 'completed', 'once more');
  writeFileSync(served.notes, JSON.stringify({ ...notes(), [`${adapter.name} ${binding}`]: contextId }));
}

async function afterRestart(adapter, binding) {
  const client = await adapter.connect(served, binding);
  const contextId = notes()[`${adapter.name} ${binding}`];
  const task = await adapter.send(client, 'scn:text n=2 text="after the restart"', { contextId });
  assert.deepEqual([adapter.state(task.status), task.contextId], ['completed', contextId], JSON.stringify(task));
  assert.equal(said(adapter, task), 'after the restart');
}

// The matrix of `make test-long` selects one of the two by its name, and a client by its name.
for (const [name, path] of [['before_restart', beforeRestart], ['after_restart', afterRestart]]) {
  for (const adapter of ADAPTERS) {
    for (const binding of BINDINGS) {
      test(`${name} of ${adapter.name}, ${binding}`, { timeout }, () => path(adapter, binding));
    }
  }
}
