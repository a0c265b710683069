// The client against the vectors that every client is held to: tests/vectors.

import assert from 'node:assert/strict';
import test from 'node:test';

import { RiglineError, duration, number, toJson, within } from '../src/index.js';
import { testVectors, vectors } from '../testing/vectors.mjs';

testVectors();

test('durations', () => {
  for (const [seconds, text] of vectors('durations.json')) assert.equal(duration(seconds), text);
  for (const bad of [0, -1, NaN, Infinity, '1']) assert.throws(() => duration(bad), RangeError);
});

for (const { text, number: wanted, less, more } of vectors('numbers.json')) {
  test(`a number: ${JSON.stringify(text)}`, () => {
    if (wanted === null) {
      assert.throws(() => number(text), (error) => error instanceof RiglineError && error.kind === 'invalid');
      assert.equal(within(text), false);
      assert.throws(() => within('1', text), TypeError);
      return;
    }
    // -0 is 0.
    assert.ok(number(text) === Number(wanted));
    for (const [low, high, is] of [
      [null, null, true],
      [wanted, wanted, true],
      [text, text, true],
      [less, more, true],
      [more, null, false],
      [null, less, false],
    ]) {
      assert.equal(within(text, low, high), is, `${low} to ${high}`);
    }
  });
}

test('a limit is a number as it is written', () => {
  assert.equal(within('3.3', 3.3, 3.3), true);
  assert.equal(within('3.3000000000000000001', null, 3.3), false);
  assert.equal(within('12345678901234567890', 12345678901234567890n, 12345678901234567890n), true);
  assert.throws(() => within('1', NaN), TypeError);
  assert.throws(() => number(undefined), /not there/);
  assert.equal(number('1'.repeat(10_001).slice(1)), Infinity);
  assert.throws(() => number('1'.repeat(10_001)), RiglineError);
});

test('numbers beyond 2^53 are written whole, and what JSON has not is refused by name', () => {
  assert.equal(toJson({ a: [12345678901234567890n, 1.5], b: undefined }), '{"a":[12345678901234567890,1.5]}');
  assert.throws(() => toJson({ a: [NaN] }), /args\.a\[0\]: NaN/);
  assert.throws(() => toJson({ f: () => {} }), /args\.f: function/);
});
