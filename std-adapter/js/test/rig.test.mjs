// The client against the simulated rig, where RIGLINE_BINARY names the program.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import test from 'node:test';

import { connect } from '../src/node.js';

const skip = process.env.RIGLINE_BINARY ? false : 'RIGLINE_BINARY names no program';
const volts = async (rig) => Number((await rig.call('measure', { channel: '3V3' })).outputs.get('volts'));

test('a program: calls, failures, and the end', { skip }, async () => {
  const rig = await connect('sim');
  assert.equal(rig.manifest.name, 'rig');
  await rig.call('power', { rail: '3V3', on: true });
  assert.ok(Math.abs((await volts(rig)) - 3.3) < 0.1);
  await assert.rejects(rig.call('fly'), { kind: 'unknown-operation' });
  await assert.rejects(rig.call('measure', { channel: 'X' }), { kind: 'bad-arguments' });
  await assert.rejects(rig.call('wait-for', { channel: '3V3', min: 9, max: 10, within_ms: 5 }), { kind: 'failed' });
  await assert.rejects(rig.call('wait-for', { channel: '3V3', min: 9, max: 10 }, { timeout: 0.1 }), { kind: 'timeout' });
  await rig.close();
  await assert.rejects(rig.call('measure', { channel: '3V3' }), { kind: 'closed' });
});

test('cutting a call off switches outputs off', { skip }, async (context) => {
  const server = spawn(process.env.RIGLINE_BINARY, ['serve', 'sim', '--tcp', '127.0.0.1:0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  context.after(() => server.kill());
  const address = await new Promise((resolve) => createInterface(server.stdout).once('line', (line) => resolve(line.split(' ').pop())));
  const first = await connect(address);
  await first.call('power', { rail: '3V3', on: true });
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 100);
  await assert.rejects(first.call('wait-for', { channel: '3V3', min: 9, max: 10, within_ms: 60000 }, { timeout: 90, signal: stop.signal }), {
    kind: 'cancelled',
  });
  await first.close();
  const second = await connect(address);
  assert.ok((await volts(second)) < 0.5);
  await second.close();
});

test('a board that is not plugged in is an error at once', { skip }, async () => {
  const root = mkdtempSync(join(tmpdir(), 'rigline-'));
  process.env.RIGLINE_ROOT = root;
  await assert.rejects(connect('serial:auto'), /no rigline device is plugged in/);
  delete process.env.RIGLINE_ROOT;
  rmSync(root, { recursive: true });
});

test('a program that cannot be started, and one that dies', { skip: process.platform === 'win32' }, async () => {
  await assert.rejects(connect(['/nonexistent/program']), { kind: 'connect' });
  await assert.rejects(connect(['sh', '-c', 'echo oops >&2; exit 3']), /exit status 3; its standard error ends with:\noops/);
  await assert.rejects(connect('garbage'), { kind: 'connect' });
});
