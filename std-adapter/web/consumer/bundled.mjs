// Runs what the bundler made.
import assert from 'node:assert/strict';
import { pathToFileURL } from 'node:url';

globalThis.document ??= { createElement: () => ({ relList: { supports: () => true } }), querySelectorAll: () => [], baseURI: pathToFileURL(process.argv[2]).href };
await import(pathToFileURL(process.argv[2]).href);
assert.deepEqual(await globalThis.consumed, ['reply']);
