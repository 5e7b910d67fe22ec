// The WebSocket binding with the package `ws`, which can do what a web page can: the token as a subprotocol.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { on, once } from 'node:events';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { ROOT, start } from './gateway.mjs';

const { WebSocket } = createRequire(join(ROOT, '.tools', 'node-clients', 'package.json'))('ws');

const timeout = 60_000;

let gateway;
before(async () => {
  gateway = await start();
});
after(() => gateway?.stop());

const connect = (token, options) => {
  const protocols = ['longshore.jsonrpc', `longshore.bearer.${encodeURIComponent(token)}`];
  return new WebSocket(`${gateway.url.replace('http', 'ws')}/ws`, protocols, options);
};

test('streams, and cancels the stream but not its task', { timeout }, async () => {
  const socket = connect(gateway.token);
  const messages = on(socket, 'message');
  const next = async () => JSON.parse((await messages.next()).value[0]);
  const send = (message) => socket.send(JSON.stringify({ jsonrpc: '2.0', ...message }));
  await once(socket, 'open');
  assert.equal(socket.protocol, 'longshore.jsonrpc');

  const message = { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text: 'scn:text n=40 text="a long way"' }] };
  send({ id: 1, method: 'SendStreamingMessage', params: { message } });
  const first = await next();
  assert.ok(first.eventId);
  send({ method: '$/cancelRequest', params: { id: 1 } });
  let received;
  do received = await next();
  while (received.method !== '$/requestEnded');
  assert.equal(received.params.id, 1);

  const { id } = first.result.task;
  const serviceParameters = { 'Last-Event-ID': first.eventId };
  send({ id: 1, method: 'SubscribeToTask', params: { id }, serviceParameters });
  const rest = [];
  for (received = await next(); received.method !== '$/requestEnded'; received = await next()) rest.push(received);
  assert.equal(rest.at(-1).result.statusUpdate.status.state, 'TASK_STATE_COMPLETED');
  socket.close();
  const [code] = await once(socket, 'close');
  assert.equal(code, 1005);
});

test('is refused with a wrong token, and for a page of another site', { timeout }, async () => {
  for (const [token, options, expected] of [
    ['wrong', {}, 401],
    [gateway.token, { origin: 'https://evil.example' }, 403],
  ]) {
    const [request, response] = await once(connect(token, options), 'unexpected-response');
    assert.equal(response.statusCode, expected);
    request.destroy();
  }
});
