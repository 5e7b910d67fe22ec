// The official MCP client lists and calls the tools, over HTTP and over `longshore mcp`.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { BINARY, ROOT, start } from './gateway.mjs';

const clients = createRequire(join(process.env.NODE_CLIENTS ?? join(ROOT, '.tools', 'node-clients'), 'package.json'));
const load = (path) => import(pathToFileURL(clients.resolve(`@modelcontextprotocol/sdk/client/${path}`)).href);
const { Client } = await load('index.js');
const { StdioClientTransport } = await load('stdio.js');
const { StreamableHTTPClientTransport } = await load('streamableHttp.js');

const timeout = 60_000;
const TOOLS = ['a2a_discover', 'a2a_call', 'a2a_continue', 'a2a_answer', 'a2a_status', 'a2a_cancel'];

let gateway;
before(async () => {
  gateway = await start();
});
after(() => gateway?.stop());

const transports = {
  HTTP: () => {
    const headers = { Authorization: `Bearer ${gateway.token}` };
    return new StreamableHTTPClientTransport(new URL(`${gateway.url}/mcp`), { requestInit: { headers } });
  },
  stdio: () => {
    const env = { ...process.env, A2A_CLIENT_BEARER_TOKEN: gateway.token };
    return new StdioClientTransport({ command: BINARY, args: ['mcp', '--url', gateway.url], env });
  },
};

for (const [name, transport] of Object.entries(transports)) {
  test(`lists and calls the tools over ${name}`, { timeout }, async () => {
    const client = new Client({ name: 'longshore-tests', version: '1.0.0' });
    await client.connect(transport());
    assert.deepEqual((await client.listTools()).tools.map((tool) => tool.name), TOOLS);
    const call = (tool, args, options) => client.callTool({ name: tool, arguments: args }, undefined, options);
    const agent = (await call('a2a_discover', {})).structuredContent.agents[0].name;

    const heard = [];
    const onprogress = (progress) => heard.push(progress.message);
    const message = 'scn:text text="from the other side"';
    const called = await call('a2a_call', { agent, message }, { onprogress, resetTimeoutOnProgress: true });
    assert.equal(called.structuredContent.state, 'completed', JSON.stringify(called));
    assert.match(called.content[0].text, /from the other side/);
    assert.ok(heard[0].startsWith(`${agent} has the message`), heard);

    const again = { call: called.structuredContent.call, message: 'scn:text text="and again"', wait_seconds: 30 };
    assert.match((await call('a2a_continue', again)).content[0].text, /and again/);

    const wrong = await call('a2a_status', { call: 'nobody' });
    assert.equal(wrong.isError, true);
    await client.close();
  });
}
