// Runs in a worker: decodes the transcript several times in both ways, in turns, and tells the times.

import { Decoder, load } from '/dist/rigline.js';

function javascript(bytes) {
  let count = 0;
  for (const line of new TextDecoder().decode(bytes).split('\n')) {
    if (line === '') continue;
    JSON.parse(line);
    count += 1;
  }
  return count;
}

function rigline(bytes) {
  const decoder = new Decoder();
  return decoder.push(bytes).length + decoder.end().length;
}

function riglineWithTexts(bytes) {
  const decoder = new Decoder();
  let count = 0;
  for (const { kind, method, id } of [...decoder.push(bytes), ...decoder.end()]) count += kind !== 'fault' || method || id ? 1 : 0;
  return count;
}

onmessage = async ({ data: { bytes, lines, rounds } }) => {
  await load(new URL('/dist/rigline_web.wasm', location.href));
  const ways = { javascript, rigline, riglineWithTexts };
  const times = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (const [name, way] of Object.entries(ways)) {
      const from = performance.now();
      const count = way(bytes);
      times[name].push(performance.now() - from);
      if (count !== lines) throw new Error(`${name}: ${count} messages of ${lines}`);
    }
  }
  postMessage(times);
};
