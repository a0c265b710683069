// Targets, and names of operations, without hardware: the peers are small programs.

import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';

import { connect, words } from '../src/node.js';

const unix = { skip: process.platform === 'win32' };

/** A program in a folder of its own that has these operations and answers each call with its name and its arguments. */
function extension(operations) {
  const path = join(mkdtempSync(join(tmpdir(), 'rigline js ')), 'echo.mjs');
  writeFileSync(
    path,
    `#!${process.execPath}
import { createInterface } from 'node:readline';
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  const result = method === 'initialize'
    ? { name: 'echo', version: '1.0.0', protocolVersion: '0.0.1', operations: ${JSON.stringify(Object.fromEntries(operations.map((name) => [name, { params: {} }])))} }
    : { success: true, outputs: { operation: params?.operation, words: JSON.stringify(process.argv.slice(2)) } };
  console.log(JSON.stringify({ jsonrpc: '2.0', id, result }));
}
`,
  );
  chmodSync(path, 0o755);
  return path;
}

test('the words of exec: are those of a POSIX shell', () => {
  for (const [text, expected] of [
    ['', []],
    ['a', ['a']],
    [' a  b\tc ', ['a', 'b', 'c']],
    [`a 'b c' "d e"`, ['a', 'b c', 'd e']],
    [`a'b'"c"d`, ['abcd']],
    [`'' ""`, ['', '']],
    ['a\\ b c\\\\', ['a b', 'c\\']],
    [`"a\\"b\\\\c\\$d\\x"`, ['a"b\\c$d\\x']],
    [`'a\\b'`, ['a\\b']],
    ['a\\\nb "c\\\nd" "e\\\\\nf"', ['ab', 'cd', 'e\\\nf']],
    [`'a`, null],
    ['"a', null],
    ['a\\', null],
  ]) {
    assert.deepEqual(words(text), expected, JSON.stringify(text));
  }
});

test('a program by its path, by exec: with arguments, and as a list', unix, async () => {
  const path = extension(['op']);
  for (const [target, args] of [
    [path, []],
    [`exec:'${path}' --flag 'two words'`, ['--flag', 'two words']],
    [[path, 'x'], ['x']],
  ]) {
    const rig = await connect(target);
    const { outputs } = await rig.call('op');
    assert.deepEqual(JSON.parse(outputs.get('words')), args, JSON.stringify(target));
    await rig.close();
  }
});

test('an operation is found in either spelling, the exact one first, and ambiguous ones are refused', unix, async () => {
  const rig = await connect(extension(['set-target', 'read_pin', 'a-b', 'a_b', 'x-y_z', 'x_y-z']));
  for (const [written, own] of [
    ['set_target', 'set-target'],
    ['set-target', 'set-target'],
    ['read-pin', 'read_pin'],
    ['a-b', 'a-b'],
    ['a_b', 'a_b'],
    ['unknown_one', 'unknown_one'],
  ]) {
    assert.equal((await rig.call(written)).outputs.get('operation'), own, written);
  }
  await assert.rejects(rig.call('x_y_z'), { kind: 'unknown-operation', message: /"x_y_z" may be x-y_z or x_y-z; write one of them/ });
  await rig.close();
});

test('what is no target says which there are', async () => {
  for (const target of ['', 'exec:', 'exec:""', `exec:'a`, 'serial:', 'replay:', 'tcp:?x=1', 'http://localhost:1/mcp', 'serail:auto', 'garbage', [], 7]) {
    await assert.rejects(connect(target), { kind: 'connect', message: /known targets: sim, serial:PORT/ }, JSON.stringify(target));
  }
});

test('a missing command says how to get it', async (context) => {
  const { PATH, RIGLINE_BINARY } = process.env;
  context.after(() => Object.assign(process.env, { PATH }, RIGLINE_BINARY && { RIGLINE_BINARY }));
  process.env.PATH = '/nonexistent';
  delete process.env.RIGLINE_BINARY;
  for (const target of ['sim', 'serial:auto', 'replay:run1', 'tcp:localhost:7000?token-file=t']) {
    await assert.rejects(connect(target), { kind: 'connect', message: /the command `rigline` is not in PATH; install it .*cargo install.* RIGLINE_BINARY/ }, target);
  }
  process.env.RIGLINE_BINARY = '/nonexistent/rigline';
  await assert.rejects(connect('sim'), { message: /RIGLINE_BINARY names \/nonexistent\/rigline, which is not there/ });
  delete process.env.RIGLINE_BINARY;
});
