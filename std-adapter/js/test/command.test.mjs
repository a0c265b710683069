// The command in the package: an installed package with a small program in the place of the command.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';

const unix = { skip: process.platform === 'win32' };
const here = fileURLToPath(new URL('..', import.meta.url));

/** A folder in which this package is installed, and beside it, unless `program` is null, this program as the command. */
function installed(context, program) {
  const folder = mkdtempSync(join(tmpdir(), 'rigline package '));
  context.after(() => rmSync(folder, { recursive: true }));
  const own = join(folder, 'node_modules/rigline');
  for (const part of ['package.json', 'bin', 'src']) cpSync(join(here, part), join(own, part), { recursive: true });
  if (program !== null) {
    const bin = join(folder, `node_modules/@rigline/${process.platform}-${process.arch}/bin`);
    mkdirSync(bin, { recursive: true });
    writeFileSync(join(bin, 'rigline'), `#!${process.execPath}\n${program}`, { mode: 0o755 });
  }
  return own;
}

/** Starts the package's `rigline`; its output and how it ended. */
function start(own, args, input = '') {
  const child = spawn(process.execPath, [join(own, 'bin/rigline.js'), ...args]);
  child.stdin.end(input);
  let out = '';
  let err = '';
  child.stdout.on('data', (data) => (out += data));
  child.stderr.on('data', (data) => (err += data));
  return { child, ended: once(child, 'close').then(([code, signal]) => ({ code, signal, out, err })) };
}

test('arguments, input, output and the exit code are those of the command', unix, async (context) => {
  const own = installed(context, 'process.stdin.on("data", (d) => console.log(JSON.stringify(process.argv.slice(2)), String(d))); process.exitCode = 124;');
  const { code, out, err } = await start(own, ['call', 'a b', ''], 'line').ended;
  assert.deepEqual([code, out, err], [124, '["call","a b",""] line\n', '']);
});

test('a signal reaches the command, which may end in its own way', unix, async (context) => {
  const own = installed(context, 'for (const s of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(s, () => { console.log(s); process.exit(7); }); setInterval(() => {}, 1000); console.log("ready");');
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) {
    const { child, ended } = start(own, []);
    await once(child.stdout, 'data');
    child.kill(signal);
    const { code, out } = await ended;
    assert.deepEqual([code, out], [7, `ready\n${signal}\n`]);
  }
});

test('a command that a signal has ended ends the package by the same signal', unix, async (context) => {
  const own = installed(context, 'process.kill(process.pid, "SIGKILL"); setInterval(() => {}, 1000);');
  assert.equal((await start(own, []).ended).signal, 'SIGKILL');
});

test('a system without a command gets an error that names the package', unix, async (context) => {
  const { code, err } = await start(installed(context, null), ['--version']).ended;
  assert.equal(code, 2);
  assert.match(err, new RegExp(`^rigline: the package @rigline/${process.platform}-${process.arch}, .* is not installed`));
});

test('the client starts the command that came with the package, if RIGLINE_BINARY names no other', unix, async (context) => {
  const own = installed(
    context,
    `import('node:readline').then(async ({ createInterface }) => {
  for await (const line of createInterface({ input: process.stdin })) {
    const { id, method } = JSON.parse(line);
    const result = method === 'initialize'
      ? { name: 'packaged', version: '1.0.0', protocolVersion: '0.0.1', operations: { op: { params: {} } } }
      : { success: true, outputs: { words: JSON.stringify(process.argv.slice(2)) } };
    console.log(JSON.stringify({ jsonrpc: '2.0', id, result }));
  }
});`,
  );
  const { RIGLINE_BINARY } = process.env;
  context.after(() => RIGLINE_BINARY && Object.assign(process.env, { RIGLINE_BINARY }));
  delete process.env.RIGLINE_BINARY;
  const { connect } = await import(pathToFileURL(join(own, 'src/node.js')).href);
  const rig = await connect('sim');
  assert.equal((await rig.call('op')).outputs.get('words'), '["rig"]');
  await rig.close();
});
