// What every client of ours is held to (tests/vectors), with lines that are made and read in WebAssembly.

import { testVectors } from '../../js/testing/vectors.mjs';
import { Client, load } from '../dist/rigline.js';

await load();
testVectors(() => new Client());
