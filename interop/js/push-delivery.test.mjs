// Push notifications, read with the types of the official client and checked with the library of Standard Webhooks.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, before, it } from 'node:test';

import { ROOT, start } from './gateway.mjs';

const require = createRequire(join(ROOT, '.tools', 'node-clients', 'package.json'));
const { StreamResponse } = require('a2a-v1');
const { Webhook } = require('standardwebhooks');

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

let gateway;
let receiver;

before(async () => {
  gateway = await start();
  receiver = createServer(async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    response.writeHead(204).end();
    receiver.emit('told', request.headers, Buffer.concat(pieces).toString());
  });
  await once(receiver.listen(0, '127.0.0.1'), 'listening');
});

after(async () => {
  receiver?.close();
  await gateway?.stop();
});

async function send(version, method, configuration, part) {
  const told = once(receiver, 'told');
  const message = { messageId: randomUUID(), kind: 'message', role: version === '1.0' ? 'ROLE_USER' : 'user', parts: [part] };
  if (version === '1.0') delete message.kind;
  const response = await fetch(gateway.url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'a2a-version': version, authorization: `Bearer ${gateway.token}` },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params: { message, configuration } }),
  });
  const { result } = await response.json();
  const [headers, body] = await told;
  return { task: result.task ?? result, headers, body };
}

const url = () => `http://127.0.0.1:${receiver.address().port}/hook`;

it('sends a StreamResponse of 1.0 whose signature is right', async () => {
  const authentication = { scheme: 'StandardWebhooks', credentials: SECRET };
  const configuration = { taskPushNotificationConfig: { url: url(), authentication } };
  const { task, headers, body } = await send('1.0', 'SendMessage', configuration, { text: 'scn:text n=2' });
  const { payload } = StreamResponse.fromJSON(JSON.parse(body));
  assert.equal(payload.$case, 'statusUpdate');
  assert.equal(payload.value.taskId, task.id);
  assert.equal(JSON.parse(body).statusUpdate.status.state, 'TASK_STATE_COMPLETED');
  new Webhook(SECRET).verify(body, headers);
  assert.throws(() => new Webhook(SECRET).verify(body.replace('COMPLETED', 'CANCELED'), headers));
  assert.throws(() => new Webhook(SECRET).verify(body, { ...headers, 'webhook-id': 'evt_other' }));
});

it('sends the task of 0.3', async () => {
  const authentication = { schemes: ['Bearer'], credentials: 'knows-me' };
  const configuration = { blocking: true, pushNotificationConfig: { url: url(), token: 'told', authentication } };
  const part = { kind: 'text', text: 'scn:text n=2' };
  const { task, headers, body } = await send('0.3', 'message/send', configuration, part);
  const told = JSON.parse(body);
  assert.deepEqual([told.kind, told.id, told.status.state], ['task', task.id, 'completed']);
  assert.deepEqual([headers.authorization, headers['x-a2a-notification-token']], ['Bearer knows-me', 'told']);
});
