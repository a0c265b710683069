// What all tests share: the command, the browser, and pages on which nothing may go wrong unseen.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { after } from 'node:test';
import { chromium } from 'playwright-core';

export const HERE = import.meta.dirname;
export const ROOT = resolve(HERE, '../../..');
/** How long anything may take. Machines that test are busy. */
export const PATIENCE = Number(process.env.PATIENCE ?? 30_000);
/** Where the pictures go; beside the target folder's other results. */
export const PICTURES = resolve(process.env.RIGLINE_PICTURES ?? join(ROOT, 'target/web-pictures'));
export const RIGLINE = process.env.RIGLINE_BINARY ?? join(ROOT, 'target/debug/rigline');
export const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
/** For work on the page: its files come from here instead of from the command. */
const PAGE = process.env.RIGLINE_PAGE;

mkdirSync(PICTURES, { recursive: true });

/** What is to be undone when the tests have ended: the last first, as it may use what was begun before. */
const undone = [];
after(async () => {
  for (const act of undone.reverse()) await act();
});
export const undo = (act) => undone.push(act);

async function end(child, ended) {
  child.stdin.end();
  child.kill();
  const timer = setTimeout(() => child.kill('SIGKILL'), 5000);
  await ended;
  clearTimeout(timer);
}

/** A folder that goes with the tests. */
export function scratch() {
  const folder = mkdtempSync(join(tmpdir(), 'rigline-web-'));
  undone.push(() =>
    // A process that has just been ended may still write: its children outlive it for a moment. `maxRetries` does not list the folder again.
    until(() => {
      try {
        rmSync(folder, { recursive: true, force: true });
        return true;
      } catch (error) {
        if (error.code !== 'ENOTEMPTY') throw error;
        return false;
      }
    }, `${folder} is removed`),
  );
  return folder;
}

/** Runs a program; `first` is its first line on standard output. It ends with the tests. */
export async function start(program, args, options = {}) {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'pipe'], ...options });
  let stderr = '';
  child.stderr.on('data', (data) => (stderr = (stderr + data).slice(-4000)));
  const ended = new Promise((done) => child.once('close', done));
  undone.push(() => end(child, ended));
  const lines = createInterface({ input: child.stdout });
  const queue = [];
  const waiting = [];
  lines.on('line', (line) => (waiting.length > 0 ? waiting.shift()(line) : queue.push(line)));
  const next = () =>
    queue.length > 0
      ? Promise.resolve(queue.shift())
      : new Promise((done, fail) => {
          waiting.push(done);
          child.once('error', fail);
          void ended.then((code) => fail(new Error(`${program} ${args.join(' ')} ended with ${code}: ${stderr}`)));
        });
  return { child, next, ended, stderr: () => stderr };
}

/** Runs `rigline web`; gives its address, which has the token. */
export async function web(...args) {
  const server = await start(RIGLINE, ['web', ...args]);
  const line = await server.next();
  const url = /https?:\/\/\S+/.exec(line)?.[0];
  assert.ok(url, `an address in ${line}`);
  return { ...server, url, line };
}

export async function run(args, input = '', options = {}) {
  const child = spawn(RIGLINE, args, { stdio: ['pipe', 'pipe', 'pipe'], ...options });
  const texts = ['', ''];
  child.stdout.on('data', (data) => (texts[0] += data));
  child.stderr.on('data', (data) => (texts[1] += data));
  child.stdin.end(input);
  const code = await new Promise((done) => child.once('close', done));
  return { code, stdout: texts[0], stderr: texts[1] };
}

export async function launch(env = {}) {
  assert.ok(existsSync(CHROMIUM), `${CHROMIUM}: .ci/web-tests.sh installs it`);
  const browser = await chromium.launch({ executablePath: CHROMIUM, headless: true, args: ['--no-sandbox', '--force-color-profile=srgb', ...(PAGE ? ['--disable-features=LocalNetworkAccessChecks'] : [])], env: { ...process.env, ...env } });
  undone.push(() => browser.close());
  return browser;
}

/**
 * A page of its own context, at an address, until the test's end. What goes to the console as an error, is not caught, or breaks the Content-Security-Policy
 * fails the test at `sound`. `isOther`: it is not the page of `rigline web`.
 */
export async function open(t, browser, url, { width = 1280, height = 900, dark = false, forced = false, isOther = false, ...more } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? 'dark' : 'light', reducedMotion: 'reduce', forcedColors: forced ? 'active' : 'none', ...more });
  t.after(() => context.close());
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  page.faults = [];
  page.expected = [];
  page.on('pageerror', (error) => page.faults.push(`not caught: ${error.stack ?? error}`));
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') page.faults.push(`${message.type()}: ${message.text()}`);
  });
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
  });
  // Nothing but the page's own server may be asked.
  await context.route((address) => address.origin !== new URL(url).origin && !['data:', 'blob:'].includes(address.protocol), (route) => {
    page.faults.push(`asked another server: ${route.request().url()}`);
    return route.abort();
  });
  if (PAGE && !isOther) {
    await context.route(/\/(assets\/.*)?(\?.*)?$/, async (route) => {
      const path = new URL(route.request().url()).pathname;
      const response = await route.fetch({ url: new URL('/rigline.js', url).href }).catch(() => null);
      // The server is gone, as some tests want.
      if (response === null) return route.abort().catch(() => {});
      const file = path === '/' ? '/index.html' : path;
      const kinds = { html: 'text/html', js: 'text/javascript', css: 'text/css', wasm: 'application/wasm', svg: 'image/svg+xml' };
      const headers = { ...response.headers(), 'content-type': kinds[file.split('.').pop()] };
      delete headers['content-length'];
      await route.fulfill({ status: 200, headers, body: readFileSync(join(PAGE, file)) });
    });
  }
  await page.goto(url);
  return page;
}

/** Nothing went wrong on the page, besides what the test expects. */
export function sound(page, ...expected) {
  const faults = page.faults.filter((fault) => !expected.some((pattern) => pattern.test(fault)));
  assert.deepEqual(faults, []);
}

export async function picture(page, name, fullPage = false) {
  await page.screenshot({ path: join(PICTURES, `${name}.png`), fullPage });
}

/** The text of what is chosen in a list of choices, as the user sees it. */
export function chosen(select) {
  return select.evaluate((one) => one.selectedOptions[0].textContent);
}

/** Waits until `read` gives `wanted`: a page is drawn after the event that changes it. */
export async function shows(read, wanted, what, patience = PATIENCE) {
  const deadline = performance.now() + patience;
  while ((await read()) !== wanted && performance.now() < deadline) await new Promise((done) => setTimeout(done, 50));
  assert.equal(await read(), wanted, what);
}

/** Waits until `check` gives something. */
export async function until(check, what, patience = PATIENCE) {
  const deadline = performance.now() + patience;
  for (;;) {
    const found = await check();
    if (found) return found;
    assert.ok(performance.now() < deadline, `${what}, within ${patience / 1000} s`);
    await new Promise((done) => setTimeout(done, 50));
  }
}
