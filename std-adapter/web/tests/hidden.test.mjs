// What a tab does that nobody sees. Playwright makes every tab believe that it is seen, so this test speaks to Chromium itself.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import test from 'node:test';
import { CHROMIUM, HERE, PATIENCE, scratch, undo, until, web } from './harness.mjs';

/** Chromium by its debugging pipe: commands on descriptor 3, answers on 4, each ended by a zero byte. */
function chromium() {
  const child = spawn(CHROMIUM, ['--headless', '--no-sandbox', '--remote-debugging-pipe', `--user-data-dir=${scratch()}`, 'about:blank'], { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
  const ended = new Promise((done) => child.once('close', done));
  undo(async () => {
    child.kill();
    await ended;
  });
  const waiting = new Map();
  let number = 0;
  let text = '';
  child.stdio[4].on('data', (data) => {
    text += data;
    const messages = text.split('\0');
    text = messages.pop();
    for (const message of messages.map((one) => JSON.parse(one))) waiting.get(message.id)?.(message);
  });
  return (method, params = {}, sessionId = undefined) =>
    new Promise((done, fail) => {
      const id = ++number;
      waiting.set(id, ({ result, error }) => (error ? fail(new Error(`${method}: ${error.message}`)) : done(result)));
      child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
}

const send = chromium();

async function tab(url) {
  const { targetId } = await send('Target.createTarget', { url });
  const { sessionId } = await send('Target.attachToTarget', { targetId, flatten: true });
  await until(async () => {
    // While the address is on its way, the tab has another document, or none.
    const asked = { expression: '`${location.href === "about:blank"} ${document.readyState}`' };
    const { result } = await send('Runtime.evaluate', asked, sessionId).catch(() => ({ result: {} }));
    return result.value === `${url === 'about:blank'} complete`;
  }, 'the page is loaded');
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true }, sessionId);
    assert.equal(exceptionDetails, undefined, JSON.stringify(exceptionDetails));
    return result.value;
  };
  return {
    evaluate,
    show: () => send('Target.activateTarget', { targetId }),
    heap: async () => {
      await send('HeapProfiler.collectGarbage', {}, sessionId);
      return (await send('Runtime.getHeapUsage', {}, sessionId)).usedSize;
    },
    click: (name) => until(() => evaluate(`(() => { const one = [...document.querySelectorAll('button')].find((button) => button.textContent.trim() === ${JSON.stringify(name)} && !button.disabled); one?.click(); return Boolean(one); })()`), name),
    fill: (label, value) =>
      until(
        () =>
          evaluate(`(() => {
            const label = [...document.querySelectorAll('label')].find((one) => one.textContent.startsWith(${JSON.stringify(label)}));
            const field = label && document.getElementById(label.htmlFor);
            if (!field) return false;
            const wanted = ${JSON.stringify(value)};
            // A choice is named by its value, or by what the user reads.
            const choice = [...(field.options ?? [])].find((one) => one.value === wanted || one.textContent === wanted);
            if (field.options && !choice) return false;
            field.value = choice ? choice.value : wanted;
            field.dispatchEvent(new Event('input', { bubbles: true }));
            field.dispatchEvent(new Event('change', { bubbles: true }));
            return true;
          })()`),
        label,
      ),
    has: (pattern) => until(() => evaluate(`${pattern}.test(document.body?.textContent ?? "")`), String(pattern)),
  };
}

/** Another tab comes to the front. */
async function cover(page) {
  const other = await tab('about:blank');
  await other.show();
  await until(() => page.evaluate('document.hidden'), 'the page is hidden');
}

test('a_hidden_tab_does_not_grow', async () => {
  const server = await web(`exec:${process.execPath} ${join(HERE, 'extension.mjs')}`);
  const page = await tab(server.url);
  await page.click('flood');
  await page.fill('count', '20000');
  await page.click('Run flood');
  await page.has(/succeeded/);
  const before = await page.heap();
  await page.fill('count', '60000');
  await page.fill('Timeout', '120');
  await page.evaluate("setTimeout(() => [...document.querySelectorAll('button')].find((one) => one.textContent.trim() === 'Run flood').click(), 1500) && 0");
  await cover(page);
  await until(() => page.evaluate("[...document.querySelectorAll('.history .badge')].filter((one) => one.textContent === 'succeeded').length === 2"), 'the flood is over', 4 * PATIENCE);
  const grown = (await page.heap()) - before;
  assert.ok(grown < 8 << 20, `grew by ${grown} bytes`);
  await page.show();
  await page.has(/older lines were dropped/);
});

// microsoft/pxt#3737: nothing was sampled, and nothing said so.
test('a plot goes on while its tab is hidden', async () => {
  const server = await web('sim');
  const page = await tab(server.url);
  await page.has(/A hardware-test rig/);
  await page.click('Plots');
  await page.fill('channel', '3V3');
  await page.click('Add to the plot');
  await page.fill('Rate', '0.1');
  await page.click('Start');
  const samples = () => page.evaluate("Number(document.querySelector('[data-samples]').dataset.samples)");
  await until(async () => (await samples()) >= 5, 'samples');
  await cover(page);
  const before = await samples();
  // Timers of a page that is hidden come once a second at most.
  await new Promise((done) => setTimeout(done, 5000));
  const during = (await samples()) - before;
  assert.ok(during >= 25, `${during} samples in 5 s at 10 a second`);
  await page.show();
  await until(async () => (await samples()) > before + during + 3, 'it goes on');
});

test('samples that were due while the tab was asleep are counted as such', async () => {
  const server = await web('sim');
  const page = await tab(server.url);
  await page.has(/A hardware-test rig/);
  await page.click('Plots');
  await page.fill('channel', '3V3');
  await page.click('Add to the plot');
  await page.fill('Rate', '0.1');
  await page.click('Start');
  await until(() => page.evaluate("Number(document.querySelector('[data-samples]').dataset.samples) >= 5"), 'samples');
  await cover(page);
  // The tab stands still, as when the computer sleeps.
  await page.evaluate('(() => { const end = performance.now() + 2000; while (performance.now() < end); })()');
  await page.show();
  await page.has(/\d+ (?:was|were) due while this tab was hidden or asleep/);
});
