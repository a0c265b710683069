// The client against the vectors that every client is held to: tests/vectors.

import assert from 'node:assert/strict';
import test from 'node:test';

import { duration, toJson } from '../src/index.js';
import { testVectors, vectors } from '../testing/vectors.mjs';

testVectors();

test('durations', () => {
  for (const [seconds, text] of vectors('durations.json')) assert.equal(duration(seconds), text);
  for (const bad of [0, -1, NaN, Infinity, '1']) assert.throws(() => duration(bad), RangeError);
});

test('numbers beyond 2^53 are written whole, and what JSON has not is refused by name', () => {
  assert.equal(toJson({ a: [12345678901234567890n, 1.5], b: undefined }), '{"a":[12345678901234567890,1.5]}');
  assert.throws(() => toJson({ a: [NaN] }), /args\.a\[0\]: NaN/);
  assert.throws(() => toJson({ f: () => {} }), /args\.f: function/);
});
