// `longshore call` and `longshore tasks` against a server of the official JavaScript SDK, over JSON-RPC.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { ROOT } from './gateway.mjs';

const BINARY = process.env.LONGSHORE_BIN ?? join(ROOT, 'target', 'debug', 'longshore');
const require = createRequire(join(ROOT, '.tools', 'node-clients', 'package.json'));
const types = require('a2a-v1');
const sdk = require('a2a-v1/server');

// Answers in pieces.
const executor = {
  async execute(request, bus) {
    const { taskId, contextId, userMessage } = request;
    const text = types.Message.toJSON(userMessage).parts[0].text;
    const ids = { taskId, contextId };
    const status = (state) => ({ state: `TASK_STATE_${state}`, timestamp: new Date().toISOString() });
    bus.publish(sdk.AgentEvent.task(types.Task.fromJSON({ id: taskId, contextId, status: status('WORKING') })));
    for (const [index, piece] of ['You said: ', text, '.'].entries()) {
      const artifact = { artifactId: 'answer', parts: [{ text: piece }] };
      const update = { ...ids, artifact, append: index > 0, lastChunk: index === 2 };
      bus.publish(sdk.AgentEvent.artifactUpdate(types.TaskArtifactUpdateEvent.fromJSON(update)));
    }
    bus.publish(sdk.AgentEvent.statusUpdate(types.TaskStatusUpdateEvent.fromJSON({ ...ids, status: status('COMPLETED') })));
    bus.finished();
  },
  async cancelTask() {},
};

let server;
let url;
let home;

before(async () => {
  home = mkdtempSync(join(tmpdir(), 'longshore-js-'));
  server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${server.address().port}`;
  const card = types.AgentCard.fromJSON({
    name: 'Echo',
    description: 'Repeats what it is told.',
    version: '1',
    capabilities: { streaming: true },
    supportedInterfaces: [{ url, protocolBinding: 'JSONRPC', protocolVersion: '1.0' }],
  });
  const requests = new sdk.DefaultRequestHandler(card, new sdk.InMemoryTaskStore(), executor);
  const rpc = new sdk.JsonRpcTransportHandler(requests);
  server.on('request', async (request, response) => {
    const json = { 'Content-Type': 'application/json' };
    if (request.method === 'GET') {
      const found = request.url === '/.well-known/agent-card.json';
      return response.writeHead(found ? 200 : 404, json).end(JSON.stringify(types.AgentCard.toJSON(card)));
    }
    let body = '';
    for await (const piece of request) body += piece;
    const context = new sdk.ServerCallContext({ requestedVersion: request.headers['a2a-version'] });
    const answer = await rpc.handle(JSON.parse(body), context);
    if (!(Symbol.asyncIterator in answer)) return response.writeHead(200, json).end(JSON.stringify(answer));
    response.writeHead(200, { 'Content-Type': 'text/event-stream' });
    for await (const event of answer) response.write(`data: ${JSON.stringify(event)}\n\n`);
    response.end();
  });
});

after(() => {
  server.close();
  rmSync(home, { recursive: true, force: true });
});

// A command that knows nothing but the URL.
async function run(...words) {
  const child = spawn(BINARY, words, { cwd: home, env: { PATH: process.env.PATH, HOME: home }, stdio: ['ignore', 'pipe', 'pipe'] });
  const said = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) child[name].setEncoding('utf8').on('data', (text) => (said[name] += text));
  const code = await new Promise((resolve) => child.on('close', resolve));
  return { code, ...said };
}

test('an answer in pieces is printed once', async () => {
  const called = await run('call', url, 'hello');
  assert.equal(called.code, 0, called.stderr);
  assert.equal(called.stdout, 'You said: hello.\n');
});

test('tasks are listed and read', async () => {
  const listed = await run('tasks', 'list', '--url', url, '--output', 'jsonl');
  assert.equal(listed.code, 0, listed.stderr);
  const { id } = JSON.parse(listed.stdout.split('\n')[0]);
  const shown = await run('tasks', 'get', id, '--url', url);
  assert.match(shown.stdout, /^You said: hello/);
});
