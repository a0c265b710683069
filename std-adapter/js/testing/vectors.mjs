// The vectors that every client is held to: tests/vectors.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import test from 'node:test';

import { connect } from '../src/node.js';

export const vectors = (name) => JSON.parse(readFileSync(new URL(`../../../tests/vectors/${name}`, import.meta.url), 'utf8'));

function bytes(line, id) {
  const { hex = '', text = '', newline = true } = typeof line === 'string' ? { text: line } : line;
  return Buffer.concat([Buffer.from(hex, 'hex'), Buffer.from(text.replaceAll('$ID', id)), Buffer.from(newline ? '\n' : '')]);
}

/** Answers `initialize`, and one call with these lines; gives the address, and a promise of the call and what came after it. */
async function peer(lines, operation) {
  let finish;
  const done = new Promise((resolve) => (finish = resolve));
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    const seen = [];
    createInterface(socket).on('line', (line) => {
      const message = JSON.parse(line);
      seen.push(message);
      if (seen.length === 1) {
        const manifest = { name: 'peer', version: '1.0.0', operations: { [operation]: { params: true } } };
        socket.write(`${JSON.stringify({ jsonrpc: '2.0', id: message.id, result: manifest })}\n`);
      } else if (seen.length === 2) {
        for (const line of lines) socket.write(bytes(line, String(message.id)));
        socket.end();
      }
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      server.close();
      finish({ call: seen[1], sent: seen.slice(2) });
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { target: `tcp:127.0.0.1:${server.address().port}`, done };
}

/** Tests a client by the vectors: one whose lines `session()` makes and reads, or the usual one where that gives nothing. */
export function testVectors(session = () => undefined) {
  for (const { name, lines, gives: wanted } of vectors('calls.json')) {
    test(`a call: ${name}`, async () => {
      const { target, done } = await peer(lines, 'op');
      const logs = [];
      const rig = await connect(target, { session: session(), onLog: (log) => logs.push(log) });
      let gives;
      try {
        const { message, outputs } = await rig.call('op');
        gives = { kind: 'success', message, outputs };
      } catch (error) {
        const { kind, text, code, result } = error;
        if (kind === 'failed') gives = { kind, error: text, outputs: result.outputs };
        else if (kind === 'lost' || kind === 'invalid') gives = { kind };
        else gives = { kind: 'refused', error: text, code };
      }
      await rig.close();
      const { sent } = await done;
      // The file's own order: JSON.parse puts names that are numbers first.
      const { outputs } = gives;
      if (outputs) gives.outputs = Object.fromEntries(outputs);
      assert.deepEqual({ ...gives, logs, sends: sent }, wanted);
      if (name === 'outputs keep their order') assert.deepEqual([...outputs.keys()], ['b', 'a', '10', '9']);
    });
  }

  for (const { kind, gevals: code, beside, reads } of vectors('failures.json')) {
    test(`a failure: ${kind}`, async () => {
      for (const own of [undefined, 'E_OWN']) {
        const isTold = beside.includes('gevals') || own !== undefined;
        const read = isTold ? kind : (reads.gevals ?? kind);
        const { client } = vectors('failures.json').find((row) => row.kind === read);
        const data = { 'rigline/kind': isTold ? kind : undefined, 'rigline/code': own };
        const reply = code === null ? { result: { success: false, error: 'why', data } } : { error: { code, message: 'why', data } };
        const line = JSON.stringify({ jsonrpc: '2.0', id: '$ID', ...reply }).replace('"$ID"', '$ID');
        const { target, done } = await peer([line], 'op');
        const rig = await connect(target, { session: session() });
        await assert.rejects(rig.call('op'), (error) => {
          assert.deepEqual([error.kind, error.ownCode], [client, own ?? null]);
          return true;
        });
        await rig.close();
        await done;
      }
    });
  }

  for (const { name, call, params } of vectors('requests.json')) {
    test(`a request: ${name}`, async () => {
      const { target, done } = await peer(['{"jsonrpc":"2.0","id":$ID,"result":{"success":true}}'], call.operation);
      const rig = await connect(target, { session: session() });
      const { operation, args, ...options } = call;
      await rig.call(operation, args, options);
      await rig.close();
      assert.deepEqual((await done).call.params, params);
    });
  }
}
