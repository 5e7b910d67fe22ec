// The official clients of both protocol versions behind one interface, so that one table of tests serves both.
//
// Results are plain JSON in the format of the client's version; `state`, `texts` and `kind` read them.

import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { join } from 'node:path';

import { ROOT } from './gateway.mjs';

const require = createRequire(join(ROOT, '.tools', 'node-clients', 'package.json'));

export const BINDINGS = ['JSONRPC', 'HTTP+JSON'];

// A client that knows only the URL of the gateway and a token. It learns everything else from the public card.
async function connect(sdk, gateway, binding, { token = gateway.token, base = '', path, legacy, ...clientConfig } = {}) {
  const fetchImpl = (url, options = {}) => {
    const headers = new Headers(options.headers);
    headers.set('Authorization', `Bearer ${token}`);
    return fetch(url, { ...options, headers });
  };
  const legacyCompat = legacy ? { enabled: true } : undefined;
  const Transport = binding === 'JSONRPC' ? sdk.JsonRpcTransportFactory : sdk.RestTransportFactory;
  const factory = new sdk.ClientFactory({
    transports: [new Transport({ fetchImpl, legacyCompat })],
    preferredTransports: [binding],
    clientConfig,
    // The public card needs no credential.
    cardResolver: new sdk.DefaultAgentCardResolver({ legacyCompat }),
  });
  return factory.createFromUrl(gateway.url + base, path);
}

async function* map(stream, change) {
  for await (const event of stream) yield change(event);
}

// Over REST of 0.3 both clients read `append` but do not return it: each update looks like a whole artifact.
const losesAppend = (binding) => binding === 'HTTP+JSON';

// Over JSON-RPC of 0.3 both clients wrap the error of a refused stream in an error of their own.
const streamRefused = (binding) => binding === 'JSONRPC' && /SSE event contained an error: .* \(Code: -32001\)/;

function version1() {
  const types = require('a2a-v1');
  const errors = require('a2a-v1/errors');
  const sdk = require('a2a-v1/client');
  const request = (text, ids) =>
    types.SendMessageRequest.fromJSON({
      message: { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text }], ...ids },
    });
  // Without a configuration, the default of the client decides whether to wait.
  const message = (text, ids) => ({ ...request(text, ids), configuration: undefined });
  const event = (value) => types.StreamResponse.toJSON(value);
  const task = (value) => types.Task.toJSON(value);
  const plain = (value) => {
    const { taskId, id, url, token, authentication } = types.TaskPushNotificationConfig.toJSON(value);
    const { scheme, credentials } = authentication ?? {};
    return { taskId, id, url, token: token || undefined, scheme, credentials: credentials || undefined };
  };
  return {
    name: '@a2a-js/sdk 1.x',
    final: false,
    lists: true,
    losesAppend: () => false,
    connect: (...about) => connect(sdk, ...about),
    card: (client) => client.getAgentCard(),
    send: async (client, text, ids) => task(await client.sendMessage(message(text, ids))),
    stream: (client, text, ids) => map(client.sendMessageStream(message(text, ids)), event),
    get: async (client, id, historyLength) => task(await client.getTask({ tenant: '', id, historyLength })),
    cancel: async (client, id) => task(await client.cancelTask({ tenant: '', id, metadata: undefined })),
    resubscribe: (client, id) => map(client.resubscribeTask({ tenant: '', id }), event),
    list: async (client, filter) =>
      types.ListTasksResponse.toJSON(await client.listTasks(types.ListTasksRequest.fromJSON(filter))),
    // The configuration of a task, in one format for all clients.
    push: {
      create: async (client, push) =>
        plain(await client.createTaskPushNotificationConfig(types.TaskPushNotificationConfig.fromJSON(push))),
      get: async (client, taskId, id) => plain(await client.getTaskPushNotificationConfig({ tenant: '', taskId, id })),
      list: async (client, taskId) =>
        (await client.listTaskPushNotificationConfig({ tenant: '', taskId, pageSize: 0, pageToken: '' })).configs.map(plain),
      delete: (client, taskId, id) => client.deleteTaskPushNotificationConfig({ tenant: '', taskId, id }),
      send: async (client, text, push) => {
        const { message, ...rest } = request(text);
        const configuration = types.SendMessageConfiguration.fromJSON({ taskPushNotificationConfig: push });
        return task(await client.sendMessage({ ...rest, message, configuration }));
      },
    },
    state: (status) => status.state.replace('TASK_STATE_', '').toLowerCase().replace('_', '-'),
    kind: (said) => Object.keys(said)[0],
    value: (said) => Object.values(said)[0],
    refused: (name) => (error) => error instanceof errors[name],
  };
}

// The same client in its legacy mode: it speaks 0.3 and returns the format of 1.0.
function version1Legacy() {
  const adapter = version1();
  const path = '/a2a/0.3/.well-known/agent-card.json';
  return {
    ...adapter,
    name: '@a2a-js/sdk 1.x in its legacy mode',
    old: true,
    lists: false,
    losesAppend,
    streamRefused,
    connect: (gateway, binding, options) => adapter.connect(gateway, binding, { ...options, path, legacy: true }),
  };
}

function version03() {
  const sdk = require('a2a-v03/client');
  const message = (text, ids) => ({
    message: { kind: 'message', messageId: randomUUID(), role: 'user', parts: [{ kind: 'text', text }], ...ids },
  });
  const nested = ({ taskId, id, url, token, authentication: { scheme, credentials } }) => ({
    taskId,
    pushNotificationConfig: { id, url, token, authentication: { schemes: [scheme], credentials } },
  });
  const plain = ({ taskId, pushNotificationConfig: { id, url, token, authentication } }) => {
    const { schemes, credentials } = authentication ?? {};
    return { taskId, id, url, token: token || undefined, scheme: schemes?.[0], credentials: credentials || undefined };
  };
  const kinds = { task: 'task', 'status-update': 'statusUpdate', 'artifact-update': 'artifactUpdate' };
  return {
    name: '@a2a-js/sdk 0.3.x',
    old: true,
    final: true,
    lists: false,
    losesAppend,
    connect: (...about) => connect(sdk, ...about),
    card: (client) => client.getAgentCard(),
    send: (client, text, ids) => client.sendMessage(message(text, ids)),
    stream: (client, text, ids) => client.sendMessageStream(message(text, ids)),
    get: (client, id, historyLength) => client.getTask({ id, historyLength }),
    cancel: (client, id) => client.cancelTask({ id }),
    resubscribe: (client, id) => client.resubscribeTask({ id }),
    push: {
      create: async (client, push) => plain(await client.setTaskPushNotificationConfig(nested(push))),
      get: async (client, id, pushNotificationConfigId) =>
        plain(await client.getTaskPushNotificationConfig({ id, pushNotificationConfigId })),
      list: async (client, id) => (await client.listTaskPushNotificationConfig({ id })).map(plain),
      delete: (client, id, pushNotificationConfigId) =>
        client.deleteTaskPushNotificationConfig({ id, pushNotificationConfigId }),
      send: (client, text, push) => {
        const configuration = { blocking: true, pushNotificationConfig: nested(push).pushNotificationConfig };
        return client.sendMessage({ ...message(text), configuration });
      },
    },
    state: (status) => status.state,
    kind: (said) => kinds[said.kind],
    value: (said) => said,
    refused: (name) => (error) => error instanceof sdk[name],
    streamRefused,
  };
}

export const ADAPTERS = [version1(), version1Legacy(), version03()];

export const textOf = (parts) => parts.map((part) => part.text ?? '').join('');

// The text of each artifact of a task.
export const texts = (task) => (task.artifacts ?? []).map((artifact) => textOf(artifact.parts));

// Applies the events of a stream and returns the resulting task.
export function fold(adapter, binding, events) {
  const [first, ...updates] = events;
  if (adapter.kind(first) !== 'task') throw new Error(`expected a task first, got ${JSON.stringify(first)}`);
  const task = structuredClone(adapter.value(first));
  task.artifacts ??= [];
  for (const said of updates) {
    const update = adapter.value(said);
    if (adapter.kind(said) === 'statusUpdate') {
      task.status = update.status;
      continue;
    }
    if (adapter.kind(said) !== 'artifactUpdate') throw new Error(`expected an update, got ${JSON.stringify(said)}`);
    const { artifact, append } = update;
    const at = task.artifacts.findIndex((known) => known.artifactId === artifact.artifactId);
    if (at < 0) task.artifacts.push(structuredClone(artifact));
    else if (append || adapter.losesAppend(binding)) task.artifacts[at].parts.push(...artifact.parts);
    else task.artifacts[at] = structuredClone(artifact);
  }
  return task;
}
