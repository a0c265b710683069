// What comes close to the limits of the language and of its runtimes.

import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import test from 'node:test';

import { Rig, Session, connect, toJson } from '../src/node.js';

const isWindows = process.platform === 'win32';

/** What a session makes of one line that comes while a call is out. */
function received(line) {
  const session = new Session();
  session.request('execute', '{}');
  return session.receive(line);
}

/** A transport whose other side answers `initialize` at once, and each other request as `answer` says. */
function answering(answer) {
  const transport = {
    onData: () => {},
    onEnd: () => {},
    send: (line) => {
      const { id, method } = JSON.parse(line);
      const result = method === 'initialize' ? { name: 'x', operations: {} } : { success: true, message: 'done' };
      const reply = () => transport.onData(Buffer.from(`${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`));
      if (method === 'initialize') setTimeout(reply);
      else answer(reply);
    },
    close: () => {},
  };
  return transport;
}

test('g: an output may be as long as a line, whatever is in it', () => {
  for (const piece of ['x', '\\n', '\\"', '\\\\', 'é', '\\ud83d\\ude00']) {
    const raw = piece.repeat(Math.floor((15 << 20) / Buffer.byteLength(piece)));
    const [{ reply }] = received(`{"jsonrpc":"2.0","id":1,"result":{"success":true,"outputs":{"n":1.50,"a":"${raw}"}}}`);
    assert.equal(reply.answer.kind, 'success', piece);
    assert.equal(reply.answer.outputs.get('n'), '1.50');
    assert.ok(reply.answer.outputs.get('a') === JSON.parse(`"${raw}"`), piece);
  }
});

test('g: a damaged line of one long string is read to its end', () => {
  const [noise, { reply }] = received(`{"jsonrpc":"2.0","id":1,"result":{"message":"${'\\"'.repeat(4 << 20)}`);
  assert.ok(noise.noise);
  assert.equal(reply.answer.kind, 'invalid');
});

test('g: a value that is nested very deeply stops no client', () => {
  const deep = '['.repeat(50_000) + ']'.repeat(50_000);
  assert.ok(received(`{"jsonrpc":"2.0","method":"log","params":{"message":${deep}}}`)[0].log.message.includes('too deeply'));
  assert.ok(received(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":${deep}}}`)[0].reply.answer.error.includes('too deeply'));
  assert.equal(received(`{"jsonrpc":"2.0","id":1,"result":{"success":true,"message":${deep}}}`)[0].reply.answer.kind, 'success');
});

test('g: a method of a peer is cut between characters', () => {
  const [{ send }] = received(`{"jsonrpc":"2.0","id":7,"method":"${'a'.repeat(63)}😀😀"}`);
  assert.equal(JSON.parse(send).error.message, `Unknown method: ${'a'.repeat(63)}😀`);
});

test('g: a timeout of more than 24 days does not end at once', async () => {
  const rig = await Rig.open(answering((reply) => setTimeout(reply, 50)), { startTimeout: 3e6 });
  assert.equal((await rig.call('op', {}, { timeout: 3e6 })).message, 'done');
  await rig.close();
});

test('g: a transport that cannot send ends the call, and leaves no timer', async () => {
  const transport = answering(() => {
    throw new Error('the cable is cut');
  });
  const rig = await Rig.open(transport);
  await assert.rejects(rig.call('op'), { kind: 'lost', text: 'nothing can be sent: the cable is cut' });
  await assert.rejects(rig.call('op'), { kind: 'lost' });
  await rig.close();
});

test('g: what would lose its contents on its way is refused by name', () => {
  for (const [value, type] of [[new Map([['a', 1]]), 'Map'], [new Set([1]), 'Set'], [Promise.resolve(1), 'Promise'], [/a/, 'RegExp'], [new Uint8Array(1), 'Uint8Array']]) {
    assert.throws(() => toJson({ a: { b: value } }), { kind: 'bad-arguments', message: `args.a.b: ${type} is not a type that JSON has` });
  }
  assert.throws(() => toJson([undefined]), { kind: 'bad-arguments' });
  assert.equal(toJson({ at: new Date(0), o: Object.create(null), c: new (class { n = 1n })() }), '{"at":"1970-01-01T00:00:00.000Z","o":{},"c":{"n":1}}');
});

test('g: close ends although the server goes on writing', { timeout: 20_000 }, async (context) => {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    let timer;
    socket.on('data', (data) => {
      const { id } = JSON.parse(data);
      socket.write(`${JSON.stringify({ jsonrpc: '2.0', id, result: { name: 'x', operations: {} } })}\n`);
      timer ??= setInterval(() => socket.write('noise\n'), 100);
    });
    socket.on('error', () => {});
    socket.on('close', () => clearInterval(timer));
  });
  context.after(() => server.close());
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const rig = await connect(`tcp:127.0.0.1:${server.address().port}`);
  await rig.close();
});

test('g: close ends although a child of the program holds its output', { skip: isWindows, timeout: 60_000 }, async () => {
  const script = `read line
id=$(printf %s "$line" | sed 's/.*"id":\\([0-9]*\\).*/\\1/')
echo '{"jsonrpc":"2.0","id":'$id',"result":{"name":"x","operations":{}}}'
sleep 300 &
read line`;
  const rig = await connect(['sh', '-c', script]);
  await rig.close();
});

test('an answer after the time limit does not count, and the session goes on', async () => {
  let pause = 400;
  const rig = await Rig.open(answering((reply) => setTimeout(reply, pause)));
  await assert.rejects(rig.call('op', {}, { timeout: 0.2 }), (error) => {
    assert.equal(error.kind, 'timeout');
    assert.match(error.text, /^the answer came after 0\.[4-9]\d* s, beyond the time limit of 0\.2 s; it said: done$/);
    return true;
  });
  pause = 0;
  assert.equal((await rig.call('op', {}, { timeout: 30 })).message, 'done');
  await rig.close();
});

test('logs without an end take bounded memory, and the dropped ones are counted', async () => {
  const transport = answering((reply) => {
    const line = Buffer.from(`${JSON.stringify({ jsonrpc: '2.0', method: 'log', params: { level: 'info', message: 'x'.repeat(500) } })}\n`.repeat(100));
    for (let count = 0; count < 200; count++) transport.onData(line);
    reply();
  });
  const rig = await Rig.open(transport);
  const { logs } = await rig.call('op');
  assert.equal(logs.length, 4097);
  assert.deepEqual([logs[0].level, logs[0].message.length], ['info', 500]);
  assert.deepEqual([logs[4096].level, logs[4096].message], ['warn', '15904 further log lines were dropped, since there were too many']);
  await rig.close();
});

test('requests of a peer that does not read are not answered beyond a limit, and the error says so', { skip: isWindows }, async () => {
  // It answers `initialize`, and then asks without end.
  const script = `read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"name":"x","operations":{}}}'; read -r line; yes '{"jsonrpc":"2.0","id":"a","method":"${'m'.repeat(60)}"}' | head -n 40000; sleep 60`;
  const rig = await connect(['sh', '-c', script]);
  const called = rig.call('op', {}, { timeout: 2 });
  await assert.rejects(called, /without reading the answers: [0-9]+ were not answered/);
  assert.ok(process.memoryUsage().arrayBuffers < 64 << 20);
  await rig.close();
});
