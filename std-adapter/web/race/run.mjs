// Writes the table of sizes, and of the race in Chromium, to README.md. `--check` runs the race and fails when it is lost, and writes nothing.

import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const web = fileURLToPath(new URL('..', import.meta.url));
const read = (name) => readFileSync(join(web, name));
const TYPES = { js: 'text/javascript', wasm: 'application/wasm' };
/** What is served: nothing else is. */
const FILES = ['dist/rigline.js', 'dist/rigline_web.wasm', 'race/page.js', 'race/worker.js'];

async function race() {
  let finish;
  const result = new Promise((resolve) => (finish = resolve));
  const server = createServer((request, response) => {
    const name = request.url.slice(1);
    if (request.method === 'POST') {
      let body = '';
      request.on('data', (data) => (body += data));
      request.on('end', () => (response.end(), finish(JSON.parse(body))));
    } else if (name === '') {
      response.setHeader('content-type', 'text/html').end('<!doctype html><title>race</title><script type="module" src="/race/page.js"></script>');
    } else if (FILES.includes(name)) {
      response.setHeader('content-type', TYPES[name.split('.').pop()]).end(read(name));
    } else response.writeHead(404).end();
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const profile = mkdtempSync(join(tmpdir(), 'rigline-race-'));
  const options = ['--headless=new', '--no-sandbox', '--disable-gpu', `--user-data-dir=${profile}`];
  const browser = spawn('chromium', [...options, `http://127.0.0.1:${server.address().port}/`], { stdio: 'ignore' });
  const failed = new Promise((_, reject) => {
    browser.on('error', (error) => reject(new Error(`there is no chromium: ${error.message}`)));
    setTimeout(() => reject(new Error('nothing came of the race within two minutes')), 120_000).unref();
  });
  try {
    const found = await Promise.race([result, failed]);
    if (found.error) throw new Error(found.error);
    return found;
  } finally {
    const gone = new Promise((resolve) => browser.on('close', resolve));
    if (browser.kill()) await gone;
    server.closeAllConnections();
    server.close();
    rmSync(profile, { recursive: true, force: true, maxRetries: 10 });
  }
}

const median = (times) => [...times].sort((a, b) => a - b)[times.length >> 1];
const kilobytes = (bytes) => `${(bytes / 1024).toFixed(1)} KB`;
const sizes = ['rigline_web.wasm', 'rigline.js'].map((name) => [name, read(`dist/${name}`).length, gzipSync(read(`dist/${name}`), { level: 9 }).length]);
const total = sizes.reduce(([all, packed], [, size, gzipped]) => [all + size, packed + gzipped], [0, 0]);

const { bytes, lines, times, longest, browser } = await race();
const [javascript, rigline, withTexts] = [times.javascript, times.rigline, times.riglineWithTexts].map(median);
const speed = (time) => `${time.toFixed(0)} ms | ${(bytes / 1e3 / time).toFixed(0)} MB/s | ${(javascript / time).toFixed(2)}x`;
const table = `| file | size | gzip -9 |
|---|---|---|
${[...sizes, ['both; the limit is 40 KB', ...total]].map(([name, size, gzipped]) => `| ${name} | ${kilobytes(size)} | ${kilobytes(gzipped)} |`).join('\n')}

A transcript of ${(bytes / 1e6).toFixed(0)} MB, ${lines} messages, in a worker of ${/Chrome\/\d+/.exec(browser)?.[0] ?? 'Chromium'} (median of ${times.rigline.length}):

| | time | | |
|---|---|---|---|
| \`split('\\n')\` and \`JSON.parse\` | ${speed(javascript)} |
| \`Decoder\` | ${speed(rigline)} |
| \`Decoder\`, and the kind, method and id of each message read | ${speed(withTexts)} |

The main thread of the page was blocked for at most ${longest.toFixed(0)} ms.`;
console.log(table);
if (process.argv.includes('--check')) {
  if (rigline > javascript) throw new Error('the race is lost');
} else {
  const readme = read('README.md').toString();
  writeFileSync(join(web, 'README.md'), readme.replace(/(<!-- race -->\n)[^]*(\n<!-- end -->)/, (_, begin, end) => begin + table + end));
}
