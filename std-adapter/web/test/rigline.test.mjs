// What rigline.js gives.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { gzipSync } from 'node:zlib';

import { Client, Decoder, Rig, load, module, validate } from '../dist/rigline.js';

const bytes = (text) => new TextEncoder().encode(text);
const dist = (name) => readFileSync(new URL(`../dist/${name}`, import.meta.url));

test('nothing works before the module is loaded, and says so', async () => {
  assert.throws(() => new Decoder(), /await load\(\)/);
  await load();
  await load();
  assert.ok(module() instanceof WebAssembly.Module);
});

test('it has at most 40 KB, compressed', () => {
  const size = gzipSync(dist('rigline_web.wasm'), { level: 9 }).length + gzipSync(dist('rigline.js'), { level: 9 }).length;
  assert.ok(size <= 40 * 1024, `${size} bytes`);
});

test('validate: the kind, the place and the reason of a fault', () => {
  for (const text of ['{}', '[1.50, "\\ud83d\\ude00"]', ' null ', '"\u00e9"']) assert.equal(validate(text), null);
  const table = [
    ['[1, 2,]', 'unexpected-byte', 6],
    ['{"a": 1', 'unexpected-end', 7],
    ['{} {}', 'trailing-data', 3],
    ['"a\tb"', 'control-character', 2],
    ['"\\x"', 'bad-escape', 2],
    ['[01]', 'bad-number', 2],
    ['', 'empty', 0],
    ['['.repeat(129), 'too-deep', 128],
    [new Uint8Array([34, 255, 34]), 'not-utf8', 1],
    ['Content-Length: 12', 'header-framing', 0],
  ];
  for (const [text, kind, position] of table) {
    const fault = validate(text);
    assert.deepEqual({ kind: fault.kind, position: fault.position }, { kind, position }, String(text).slice(0, 20));
    assert.ok(fault.reason.length > 3);
  }
  // More than the memory that the module begins with.
  assert.equal(validate(`[${'1,'.repeat(5_000_000)}1]`), null);
});

test('messages of every protocol', () => {
  const lines = [
    '{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"mea\\u0073ure"}}',
    '{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"m"}}',
    '{"jsonrpc":"2.0","id":1,"result":{"success":false,"error":"no"}}',
    '{"jsonrpc":"2.0","id":"a","method":"eval.list"}',
    '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}',
    '{"op":"measure","args":{}}',
    '{"ok":true,"result":{}}',
    '{"protocol_version":1,"tool":"t","payload":{}}',
    '{"id":"1","ts":1,"event":"session:end","component":"kernel"}',
    '[{"jsonrpc":"2.0","id":1,"method":"m"}]',
    '{"a":1}',
    'Booting v1.2',
  ];
  const found = new Decoder().push(bytes(`${lines.join('\n')}\n`));
  assert.deepEqual(
    found.map(({ kind, protocol, method, operation, id }) => [kind, protocol, method, operation, id]),
    [
      ['request', 'gevals', 'execute', 'measure', '1'],
      ['log', 'gevals', 'log', null, null],
      ['error', 'gevals', null, null, '1'],
      ['request', 'waza', 'eval.list', null, '"a"'],
      ['request', 'mcp', 'tools/call', 't', '2'],
      ['request', 'amplifier', 'measure', 'measure', null],
      ['reply', 'amplifier', null, null, null],
      ['request', 'namel3ss', 't', 't', null],
      ['event', 'amplifier', 'session:end', null, '"1"'],
      ['batch', 'mcp', null, null, null],
      ['json', null, null, null, null],
      ['fault', null, null, null, null],
    ],
  );
  found.forEach((message, at) => assert.deepEqual([message.raw, message.number, message.length], [lines[at], at + 1, lines[at].length]));
  assert.equal(found[11].fault.kind, 'unexpected-byte');
  assert.equal(found[0].fault, null);
});

test('however the bytes are cut, and with lines that are too long, broken or without an end', () => {
  const stream = Buffer.concat([bytes('\ufeff{"op":"health"}\r\n\n'), bytes(`"${'x'.repeat(60)}"\n`), Buffer.from([0xff, 0x0a]), bytes('{"a":"\u00e9"}')]);
  let wanted = null;
  for (let step = 1; step <= stream.length; step += 1) {
    const decoder = new Decoder({ limit: 50 });
    const found = [];
    for (let at = 0; at < stream.length; at += step) found.push(...decoder.push(stream.subarray(at, at + step)));
    found.push(...decoder.end());
    const all = found.map(({ kind, number, offset, length, raw, fault }) => ({ kind, number, offset, length, raw, fault }));
    wanted ??= all;
    assert.deepEqual(all, wanted, `pieces of ${step}`);
  }
  assert.deepEqual(wanted.map(({ kind, number, offset, length, raw }) => [kind, number, offset, length, raw]), [
    ['request', 1, 3, 15, '{"op":"health"}'],
    ['fault', 3, 21, 62, ''],
    ['fault', 4, 84, 1, '\ufffd'],
    ['json', 5, 86, 10, '{"a":"\u00e9"}'],
  ]);
  assert.equal(wanted[1].fault.reason, 'a line of 62 bytes is over the limit of 50 bytes');
  assert.deepEqual([wanted[1].fault.kind, wanted[1].fault.position], ['too-long', 50]);
});

test('the bytes that were pushed may be used again, and messages can be kept apart from them', () => {
  const decoder = new Decoder();
  const chunk = bytes('{"op":"one"}\n{"op":"two"}\n');
  const [one, two] = decoder.push(chunk);
  chunk.fill(0);
  assert.equal(two.detach(), two);
  decoder.push(bytes('{"op":"three"}\n'.repeat(1000)));
  assert.deepEqual([one.method, two.method, two.bytes.buffer.byteLength], ['one', 'two', 12]);
  assert.deepEqual([two.number, two.offset, two.operation], [2, 13, 'two']);
});

test('decoders are apart from each other, and begin anew', () => {
  const [first, second] = [new Decoder(), new Decoder({ serial: true })];
  assert.deepEqual(first.push(bytes('{"op":')), []);
  assert.equal(second.push(bytes('{"op":"x"}\r'))[0].method, 'x');
  assert.equal(first.push(bytes('"y"}\n'))[0].method, 'y');
  first.push(bytes('half'));
  first.reset();
  const [only] = first.push(bytes('{"op":"z"}\n'));
  assert.deepEqual([only.method, only.number, only.offset], ['z', 1, 0]);
});

test('a large stream, with lines that are larger than a piece', () => {
  const line = `{"jsonrpc":"2.0","id":1,"result":{"text":"${'x'.repeat(3 << 20)}"}}\n`;
  const stream = bytes(line.repeat(3));
  const decoder = new Decoder();
  const found = [...decoder.push(stream), ...decoder.end()];
  assert.deepEqual(found.map(({ kind, length, number }) => [kind, length, number]), [1, 2, 3].map((number) => ['reply', line.length - 1, number]));
  assert.equal(found[2].raw, line.slice(0, -1));
});

test('recordings are unwrapped', () => {
  const recording = [
    '{"rigline":"transcript","version":1,"target":"sim"}',
    '{"ms":3,"sent":"{\\"jsonrpc\\":\\"2.0\\",\\"id\\":1,\\"method\\":\\"initialize\\",\\"params\\":{\\"protocolVersion\\":\\"0.0.1\\"}}"}',
    '{"ms":5,"got_hex":"ff7b7d"}',
  ].join('\n');
  const decoder = new Decoder();
  const [header, sent, got] = [...decoder.push(bytes(recording)), ...decoder.end()];
  assert.equal(header.recorded, null);
  assert.deepEqual([sent.kind, sent.method, sent.recorded], ['request', 'initialize', { direction: 'sent', time: 3 }]);
  assert.ok(sent.raw.startsWith('{"jsonrpc"') && sent.number === 2);
  assert.deepEqual([got.kind, got.fault.kind, [...got.bytes], got.recorded.direction], ['fault', 'not-utf8', [255, 123, 125], 'received']);
});

test('a client: ids, replies, and what is none', () => {
  const client = new Client(5);
  assert.deepEqual(client.request('execute', '{"a":\n"\u00e9"}'), {
    id: 6,
    line: '{"jsonrpc":"2.0","id":6,"method":"execute","params":{"a":"\u00e9"}}\n',
  });
  const [log, reply, noise] = client.receive(
    '\ufeff{"jsonrpc":"2.0","method":"log","params":{"level":"warning","message":"\u00e9"}}{"id":6,"result":{"success":true,"outputs":{"b":1.50,"a":"x"}}} tail',
  );
  assert.deepEqual(log, { log: { level: 'warn', message: '\u00e9', data: null } });
  assert.deepEqual([reply.reply.id, [...reply.reply.answer.outputs]], [6, [['b', '1.50'], ['a', 'x']]]);
  assert.deepEqual(noise, { noise: 'tail' });
  assert.deepEqual(client.receive('{"id":6,"result":{}}'), [{ noise: '{"id":6,"result":{}}' }]);
  assert.throws(() => client.request('m', '{'), /params: .* at byte 1/);
  for (let out = 0; out < 8; out += 1) client.request('m', '{}');
  assert.throws(() => client.request('m', '{}'), /too many requests/);
});

test('a rig over any transport', async () => {
  const transport = { onData() {}, onEnd() {}, close() {} };
  transport.send = (line) => {
    const { id, method } = JSON.parse(line);
    const result = method === 'initialize' ? { name: 'r', version: '1', operations: {} } : { success: true, message: 'done' };
    const text = `${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`;
    for (const byte of bytes(text)) transport.onData(new Uint8Array([byte]));
  };
  const rig = await Rig.open(transport, { session: new Client() });
  assert.equal(rig.manifest.name, 'r');
  assert.equal((await rig.call('go')).message, 'done');
});

// A value of a wrong type was dropped, or failed much later.
test('a value of a wrong type is a TypeError that names the argument', async () => {
  await load();
  const odd = { number: 5, string: 'text', null: null, undefined: undefined, Object: {}, Array: [1], ArrayBuffer: new ArrayBuffer(2), boolean: true, Uint16Array: new Uint16Array(2) };
  const except = (...names) => Object.entries(odd).filter(([name]) => !names.includes(name));
  const table = [
    ['bytes', except(), (value) => new Decoder().push(value)],
    ['text', except('string'), (value) => validate(value)],
    ['limit', except('number', 'undefined'), (value) => new Decoder({ limit: value })],
    ['serial', except('boolean', 'undefined'), (value) => new Decoder({ serial: value })],
    ['base', except('number', 'undefined'), (value) => new Client(value)],
    ['method', except('string'), (value) => new Client().request(value, '{}')],
    ['params', except('string'), (value) => new Client().request('execute', value)],
    ['line', except('string'), (value) => new Client().receive(value)],
  ];
  for (const [name, values, act] of table) {
    for (const [type, value] of values) {
      assert.throws(() => act(value), (error) => error instanceof TypeError && error.message.startsWith(`${name} must be `) && error.message.includes(`, not ${type === 'null' ? 'Null' : type}`), `${name}: ${type}`);
    }
  }
  for (const limit of [0, -1, Number.NaN, 2 ** 31]) assert.throws(() => new Decoder({ limit }), RangeError);
  // Node's buffers are such arrays.
  assert.equal(new Decoder().push(Buffer.from('{}\n')).length, 1);

  const transport = { send() {}, close() {} };
  const opening = [['transport.send', 5], ['transport.send', null], ['transport.close', { send() {} }]];
  for (const [name, value] of opening) await assert.rejects(Rig.open(value), (error) => error instanceof TypeError && error.message.startsWith(`${name} must be function`));
  for (const [name, options] of [['options', 5], ['timeout', { timeout: '5' }], ['onLog', { onLog: 5 }], ['onNoise', { onNoise: {} }]]) {
    await assert.rejects(Rig.open(transport, options), (error) => error instanceof TypeError && error.message.startsWith(`${name} must be `), name);
  }
  const answering = {
    send: (line) => queueMicrotask(() => answering.onData(bytes(`{"jsonrpc":"2.0","id":${JSON.parse(line).id},"result":{"name":"n"}}\n`))),
    close() {},
  };
  // Without a session of the caller's own it has one.
  const rig = await Rig.open(answering);
  for (const [name, args] of [['operation', [5]], ['operation', [{}]], ['args', ['go', 'x']], ['args', ['go', [1]]], ['options', ['go', {}, 5]]]) {
    await assert.rejects(rig.call(...args), (error) => error instanceof TypeError && error.message.startsWith(`${name} must be `), name);
  }
});
