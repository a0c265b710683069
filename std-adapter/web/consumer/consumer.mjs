// The package in Node, as it is installed.
import assert from 'node:assert/strict';
import { Client, Decoder, load, validate } from 'rigline-web';

await load();
assert.equal(validate('{"a":[1,2]}'), null);
const [message] = new Decoder().push(new TextEncoder().encode('{"jsonrpc":"2.0","id":7,"method":"initialize"}\n'));
assert.equal(message.method, 'initialize');
assert.match(new Client().request('shutdown', '{}').line, /"shutdown"/);
