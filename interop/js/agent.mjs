// An agent of the official JavaScript SDK, for `longshore call` and the other commands: node agent.mjs BINDING VERSION
//
// It repeats what it is told, and does something else for a few words: `ask`, `fail`, `wait`, `message`. It prints its URL, and ends
// when its standard input ends.

import { createRequire } from 'node:module';
import { once } from 'node:events';
import { join } from 'node:path';

import { ROOT } from './gateway.mjs';

const require = createRequire(join(ROOT, '.tools', 'node-clients', 'package.json'));
const express = require('express');
const grpc = require('@grpc/grpc-js');
const { AgentCard, Message, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent } = require('a2a-v1');
const { AgentEvent, DefaultRequestHandler, InMemoryPushNotificationStore, InMemoryTaskStore } = require('a2a-v1/server');
const { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } = require('a2a-v1/server/express');
const { A2AService, grpcService } = require('a2a-v1/server/grpc');
const { LegacyA2AService, legacyGrpcService } = require('a2a-v1/compat/v0_3/server/grpc');

const [binding, version] = process.argv.slice(2);

let messages = 0;
const said = (text, ids = {}) =>
  Message.fromJSON({ messageId: `m${(messages += 1)}`, role: 'ROLE_AGENT', parts: [{ text }], ...ids });

class Echo {
  waiting = new Map();

  async execute({ taskId, contextId, userMessage, task }, bus) {
    const ids = { taskId, contextId };
    const text = userMessage.parts[0].content.value;
    const status = (state, message) =>
      bus.publish(AgentEvent.statusUpdate({ ...TaskStatusUpdateEvent.fromJSON(ids), status: { state, message } }));
    if (text === 'message') return bus.publish(AgentEvent.message(said('Only a message.', { contextId })));

    const submitted = () => Task.fromJSON({ id: taskId, contextId, status: { state: 'TASK_STATE_SUBMITTED' } });
    bus.publish(AgentEvent.task(task ?? { ...submitted(), history: [userMessage] }));
    status(TaskState.TASK_STATE_WORKING);
    if (text === 'ask') return status(TaskState.TASK_STATE_INPUT_REQUIRED, said('Which colour?', ids));
    if (text === 'fail') return status(TaskState.TASK_STATE_FAILED, said('Because.', ids));
    if (text === 'wait') {
      await new Promise((resolve) => this.waiting.set(taskId, resolve));
      return status(TaskState.TASK_STATE_CANCELED);
    }
    const pieces = ['You said: ', text, '.'];
    pieces.forEach((piece, index) => {
      const artifact = { artifactId: 'answer', parts: [{ text: piece }] };
      const update = { ...ids, artifact, append: index > 0, lastChunk: index === pieces.length - 1 };
      bus.publish(AgentEvent.artifactUpdate(TaskArtifactUpdateEvent.fromJSON(update)));
    });
    return status(TaskState.TASK_STATE_COMPLETED);
  }

  async cancelTask(taskId) {
    this.waiting.get(taskId)?.();
  }
}

const server = await new Promise((resolve) => {
  const app = express();
  const listening = app.listen(0, '127.0.0.1', () => resolve({ app, port: listening.address().port, listening }));
});
const url = `http://127.0.0.1:${server.port}`;

let interfaceUrl = url;
const grpcServer = new grpc.Server();
if (binding === 'GRPC') {
  const bind = (resolve, reject) => (error, port) => (error ? reject(error) : resolve(port));
  const port = await new Promise((resolve, reject) =>
    grpcServer.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), bind(resolve, reject)),
  );
  interfaceUrl = `127.0.0.1:${port}`;
}

const described = (description) =>
  AgentCard.fromJSON({
    name: 'Echo',
    description,
    version: '1',
    capabilities: { streaming: true, pushNotifications: true, extendedAgentCard: true },
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain'],
    skills: [],
    supportedInterfaces: [{ url: interfaceUrl, protocolBinding: binding, protocolVersion: version }],
  });

const requestHandler = new DefaultRequestHandler(
  described('Repeats what it is told.'),
  new InMemoryTaskStore(),
  new Echo(),
  undefined,
  new InMemoryPushNotificationStore(),
  undefined,
  described('Repeats what it is told, and more.'),
);
const legacyCompat = { enabled: version === '0.3' };
const options = { requestHandler, userBuilder: UserBuilder.noAuthentication, legacyCompat };
server.app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler, legacyCompat }));
if (binding === 'JSONRPC') server.app.use('/', jsonRpcHandler(options));
if (binding === 'HTTP+JSON') server.app.use('/', restHandler(options));
grpcServer.addService(A2AService, grpcService(options));
grpcServer.addService(LegacyA2AService, legacyGrpcService(options));

console.log(`url ${url}`);
process.stdin.resume();
await once(process.stdin, 'end');
process.exit(0);
