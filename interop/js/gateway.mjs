// The real `longshore serve --demo` with the real OpenCode, for one run of the tests. As interop/python/gateway.py.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const TOOLS = join(ROOT, '.tools', 'bin');
export const BINARY = process.env.LONGSHORE_BIN ?? join(ROOT, 'target', 'debug', 'longshore');
const TOKEN = 'a-token-for-tests-only-0123456789';

// A gateway that has not printed its URL by then has failed to start.
const START_MILLISECONDS = 60_000;

// Starts a gateway and waits until it listens: its `url`, its `token`, and `stop()`.
export async function start() {
  for (const [program, remedy] of [
    [join(TOOLS, 'opencode'), 'tools/install-opencode.sh'],
    [join(TOOLS, 'rg'), 'tools/install-opencode.sh'],
    [BINARY, 'cargo build --package longshore'],
  ]) {
    if (!existsSync(program)) throw new Error(`${program} is missing: run ${remedy}`);
  }
  const directory = mkdtempSync(join(tmpdir(), 'longshore-js-'));
  const [workspace, home, data] = ['workspace', 'home', 'data'].map((name) => join(directory, name));
  makeRepository(workspace);
  mkdirSync(home);
  const env = {
    PATH: `${TOOLS}${delimiter}${process.env.PATH}`,
    HOME: home,
    A2A_BEARER_TOKEN: TOKEN,
    // Receivers of push notifications are on this machine.
    LONGSHORE_PUSH_ALLOW_HTTP: 'true',
    LONGSHORE_PUSH_INTERNAL_NETWORKS: '127.0.0.1',
  };
  const flags = ['--demo', '--data-dir', data, '--workspace', workspace];
  const log = join(directory, 'gateway.log');
  const child = spawn(BINARY, ['serve', ...flags, '--port', '0'], {
    env,
    cwd: directory,
    stdio: ['ignore', 'pipe', openSync(log, 'w')],
  });
  const ended = once(child, 'exit');

  // Ends the gateway and the OpenCode that it started, and nothing else.
  async function stop() {
    child.kill('SIGKILL');
    await ended;
    execFileSync(BINARY, ['stop', ...flags], { env, stdio: 'pipe' });
    rmSync(directory, { recursive: true, force: true });
  }

  const url = await listening(child);
  if (url === undefined) {
    const logged = readFileSync(log, 'utf8');
    await stop();
    throw new Error(`longshore did not print its URL; it logged:\n${logged}`);
  }
  // Later output is discarded.
  child.stdout.resume();
  return { url, token: TOKEN, stop };
}

// Reads the output of the gateway until it prints its URL.
async function listening(child) {
  const lines = createInterface({ input: child.stdout, signal: AbortSignal.timeout(START_MILLISECONDS) });
  for await (const line of lines) {
    const [name, url] = line.trim().split(/\s+/);
    if (name === 'url') return url;
  }
  return undefined;
}

// A git repository with one commit: OpenCode names a project by its first commit.
function makeRepository(directory) {
  mkdirSync(directory);
  writeFileSync(join(directory, 'README.md'), '# Harbour\n');
  const identity = ['-c', 'user.name=Ada', '-c', 'user.email=ada@example.com'];
  for (const command of [['init', '--quiet'], ['add', '.'], [...identity, 'commit', '--quiet', '--message=First']]) {
    execFileSync('git', command, { cwd: directory, stdio: 'pipe' });
  }
}
