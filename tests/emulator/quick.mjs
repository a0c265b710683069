import path from 'node:path'; import fs from 'node:fs';
import { readImage } from './image.mjs'; import { Bench } from './measure.mjs';
const d = process.argv[2]; const f = fs.readFileSync(new URL('../bench/execute.jsonl', import.meta.url), 'utf8').trimEnd();
const [e, g] = ['echo', 'engine'].map((n) => readImage(path.join(d, n)).sizes);
console.log('flash over echo', g.flash - e.flash, 'ram', g.staticRam - e.staticRam);
const b = await Bench.open(path.join(d, 'engine')); console.log(await b.exchange(f)); process.exit(0);
