// The module says of every text what the same code says when it is built for this machine: of the fuzz seeds, of the fixture lines of the
// tests, of JSONTestSuite where it is at hand, and of texts that are damaged by chance.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import test from 'node:test';

import { load, module } from '../dist/rigline.js';

const root = fileURLToPath(new URL('../../../', import.meta.url));
await load();

/** The files below a folder. */
function files(folder) {
  const path = join(root, folder);
  if (!existsSync(path)) return [];
  return readdirSync(path, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

/** Lines of every protocol, one behind the other and each with damage that is new each time; the seed is printed. */
function damaged(folder) {
  const lines = files('tests/fuzz/seeds').flatMap((file) => readFileSync(file, 'latin1').split('\n'));
  for (const { lines: calls } of JSON.parse(readFileSync(join(root, 'tests/vectors/calls.json'), 'utf8'))) {
    for (const line of calls) lines.push(typeof line === 'string' ? line : (line.text ?? Buffer.from(line.hex, 'hex').toString('latin1')));
  }
  let state = Number(process.env.SEED ?? Date.now() % 1e9);
  console.log(`SEED=${state}`);
  const random = (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const names = [];
  for (let number = 0; number < 200; number += 1) {
    const bytes = [];
    for (let line = 0; line < 8; line += 1) {
      const text = Buffer.from(lines[random(lines.length)], 'latin1');
      if (text.length > 0 && random(3) > 0) text[random(text.length)] = random(256);
      bytes.push(text, Buffer.from(['\n', '\r\n', '\r', '\n\n', ''][random(5)]));
    }
    const name = join(folder, `${number}`);
    writeFileSync(name, Buffer.concat(bytes));
    names.push(name);
  }
  return names;
}

const hex = (bytes) => Buffer.from(bytes).toString('hex');

/** What the example `native` prints of a file, for one size of pieces. */
function seen(bytes, step, serial) {
  const wasm = new WebAssembly.Instance(module(), {}).exports;
  const write = (piece) => {
    // It may make the memory larger, and then there is a new buffer.
    const at = wasm.buffer(piece.length);
    new Uint8Array(wasm.memory.buffer, at, piece.length).set(piece);
  };
  const u8 = (at, length) => new Uint8Array(wasm.memory.buffer, at, length);
  write(bytes);
  const fault = wasm.validate();
  wasm.reset(4000, serial);
  let text = '';
  const put = (count, piece) => {
    const words = new Uint32Array(wasm.memory.buffer, wasm.records(), count * 16);
    for (let at = 0; at < words.length; at += 16) {
      const record = words.subarray(at, at + 16);
      const source = record[0] & (1 << 18) ? u8(wasm.spilled(), wasm.spilled_length()) : piece;
      text += `${[...record].map((word) => `${word.toString(16)},`).join('')}${hex(source.subarray(record[2], record[2] + record[3]))};`;
    }
  };
  for (let at = 0; at < bytes.length; at += step) {
    const piece = bytes.subarray(at, at + step);
    write(piece);
    put(wasm.feed(), piece);
  }
  put(wasm.finish(), new Uint8Array());
  return `${fault >> 32n} ${fault & 0xffffffffn} ${text}`;
}

test('the module and the machine agree', (context) => {
  const folder = mkdtempSync(join(tmpdir(), 'rigline-web-'));
  context.after(() => rmSync(folder, { recursive: true }));
  const suite = files('../shared/vectors/json-test-suite/test_parsing');
  if (suite.length === 0) console.log('skipped: JSONTestSuite, which is not at hand');
  const names = [...files('tests/fuzz/seeds'), ...files('tests/vectors'), ...suite, ...damaged(folder)];
  const command = ['run', '-q', '-p', 'rigline-web', '--example', 'native'];
  const output = execFileSync('cargo', command, { cwd: root, input: names.join('\n'), encoding: 'latin1', maxBuffer: 1 << 30 });
  const lines = output.split('\n').filter((line) => line !== '');
  assert.equal(lines.length, names.length * 6);
  let records = 0;
  for (const line of lines) {
    const [number, step, serial] = line.split(' ', 3).map(Number);
    const native = line.split(' ').slice(3).join(' ');
    records += native.split(';').length - 1;
    assert.equal(seen(readFileSync(names[number]), step, serial), native, `${names[number]}, in pieces of ${step}`);
  }
  console.log(`${names.length} files, ${records} records`);
  assert.ok(records > 5000);
});
