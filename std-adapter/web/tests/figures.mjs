// Writes the table of the page's sizes, of a flood of log lines, and of a day of samples to page/README.md. `--check` writes nothing, and fails where
// a bound is broken. It needs the command: `cargo build -p rigline-cli`; or RIGLINE_BINARY.
import { spawn } from 'node:child_process';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { gzipSync } from 'node:zlib';
import { chromium } from 'playwright-core';
import { bench } from './chart.mjs';
import { flood } from './flood.mjs';

const here = import.meta.dirname;
const readme = resolve(here, '../page/README.md');
const LINES = 200_000;
/** In bytes, compressed; in milliseconds; in MB. */
const BOUNDS = { page: 128 * 1024, parser: 40 * 1024, gap: 100, day: 150 };

const kilobytes = (bytes) => `${(bytes / 1024).toFixed(1)} KB`;

function sizes() {
  const assets = resolve(here, '../dist/assets');
  const names = { index: 'the page', worker: 'its worker for transcripts', rigline_web: 'the parser' };
  return readdirSync(assets)
    .filter((name) => /\.(js|css|wasm)$/.test(name))
    .sort()
    .map((name) => {
      const content = readFileSync(join(assets, name));
      const what = `${names[name.split('-')[0]] ?? name}, ${{ js: 'JavaScript', css: 'styles', wasm: 'WebAssembly' }[name.split('.').pop()]}`;
      return { name, what, size: content.length, packed: gzipSync(content, { level: 9 }).length };
    });
}

async function measureFlood(browser) {
  const rigline = process.env.RIGLINE_BINARY ?? resolve(here, '../../../target/debug/rigline');
  const server = spawn(rigline, ['web', `exec:${process.execPath} ${join(here, 'extension.mjs')}`], { stdio: ['pipe', 'pipe', 'inherit'] });
  try {
    const [first] = await new Promise((done, fail) => {
      createInterface({ input: server.stdout }).once('line', (line) => done([line]));
      server.once('error', fail);
    });
    const page = await browser.newPage();
    page.setDefaultTimeout(600_000);
    await page.goto(/https?:\/\/\S+/.exec(first)[0]);
    const found = await flood(browser, page, LINES);
    await page.close();
    return found;
  } finally {
    server.stdin.end();
    server.kill();
  }
}

async function measureDay(browser) {
  const { url, close } = await bench();
  try {
    const page = await browser.newPage();
    await page.goto(url);
    const session = await page.context().newCDPSession(page);
    const day = await page.evaluate(() => globalThis.day(4));
    await session.send('HeapProfiler.collectGarbage');
    const { usedSize, backingStorageSize = 0 } = await session.send('Runtime.getHeapUsage');
    return { ...day, memory: (usedSize + backingStorageSize) / 1e6 };
  } finally {
    close();
  }
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', headless: true, args: ['--no-sandbox'] });
try {
  const files = sizes();
  const [all, packed] = files.reduce(([all, packed], one) => [all + one.size, packed + one.packed], [0, 0]);
  const floods = await measureFlood(browser);
  const day = await measureDay(browser);
  const table = `| file | size | gzip -9 |
|---|---|---|
${files.map(({ what, size, packed }) => `| ${what} | ${kilobytes(size)} | ${kilobytes(packed)} |`).join('\n')}
| all | ${kilobytes(all)} | ${kilobytes(packed)} |

| | | bound |
|---|---|---|
| ${LINES.toLocaleString('en')} log lines over the WebSocket | ${(floods.took / 1000).toFixed(1)} s, ${floods.frames.toLocaleString('en')} frames | |
| the longest gap between two frames meanwhile | ${floods.longestGap.toFixed(0)} ms | ${BOUNDS.gap} ms |
| the longest task of the page meanwhile, processor time | ${floods.longestTask.toFixed(0)} ms | ${BOUNDS.gap} ms |
| a day of 10 samples a second, 4 outputs: ${day.rows.toLocaleString('en')} rows, memory of the page | ${day.memory.toFixed(0)} MB | ${BOUNDS.day} MB |
| drawing that day | ${day.middle.toFixed(0)} ms | |`;
  console.log(table);
  const parser = files.find(({ name }) => name.startsWith('rigline_web')).packed;
  const broken = [
    [packed > BOUNDS.page, `the page has ${kilobytes(packed)} compressed`],
    [parser > BOUNDS.parser, `the parser has ${kilobytes(parser)} compressed`],
    [floods.longestTask > BOUNDS.gap, `a task of the page took ${floods.longestTask.toFixed(0)} ms`],
    [day.memory > BOUNDS.day || day.dropped > 0, `a day takes ${day.memory.toFixed(0)} MB, and drops ${day.dropped} rows`],
  ].filter(([isBroken]) => isBroken);
  if (process.argv.includes('--check')) {
    if (broken.length > 0) throw new Error(broken.map(([, why]) => why).join('; '));
  } else {
    const text = readFileSync(readme, 'utf8');
    writeFileSync(readme, text.replace(/(<!-- page -->\n)[^]*?(\n<!-- end of page -->)/, (_, begin, end) => begin + table + end));
  }
} finally {
  await browser.close();
}
