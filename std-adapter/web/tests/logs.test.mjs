// Logs: searched, filtered, copied, saved, in colours; and a flood of them.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { flood } from './flood.mjs';
import { HERE, launch, open, PATIENCE, scratch, shows, sound, until, web } from './harness.mjs';

const browser = await launch();
const odd = await web(`exec:${process.execPath} ${join(HERE, 'extension.mjs')}`);

async function ran(t, operation, options) {
  const page = await open(t, browser, odd.url, options);
  await page.getByRole('navigation', { name: 'Operations' }).getByRole('button', { name: operation, exact: true }).click();
  await page.getByRole('button', { name: `Run ${operation}` }).click();
  await page.getByRole('group', { name: /^Result of call/ }).getByText('succeeded').waitFor();
  return page;
}

const rows = (page, list = 'Logs') => page.getByRole('listbox', { name: list, exact: true }).getByRole('option').allTextContents();

test('logs are searched and filtered by level, and what matches is copied and saved as text', async (t) => {
  const page = await ran(t, 'levels', { permissions: ['clipboard-read', 'clipboard-write'] });
  await shows(async () => (await rows(page)).length, 12);
  await page.getByRole('searchbox', { name: 'Search the log' }).fill('BETA');
  await shows(async () => (await rows(page)).length, 4);
  await page.getByText('4 of 12 lines match.').waitFor();
  await page.getByRole('combobox', { name: 'Level', exact: true }).selectOption({ label: 'warnings and errors' });
  await until(async () => (await rows(page)).map((row) => row.replace(/^\S+ /, '')).join('|') === 'warn beta at warn|error beta at error', 'two lines');
  await page.getByRole('button', { name: 'Copy', exact: true }).click();
  await page.getByText('2 lines copied.').waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(copied, /^\d{4}-\d\d-\d\dT[\d:.]+Z warn beta at warn\n\S+ error beta at error\n$/);
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save as text' }).click()]);
  const file = join(scratch(), 'logs.txt');
  await download.saveAs(file);
  assert.equal(readFileSync(file, 'utf8'), copied);
  await page.getByRole('searchbox', { name: 'Search the log' }).fill('nothing of the kind');
  await page.getByText('No line matches.').waitFor();
  // A chosen row is that of the filtered list.
  await page.getByRole('searchbox', { name: 'Search the log' }).fill('gamma at error');
  await page.getByRole('listbox', { name: 'Logs', exact: true }).getByRole('option').first().click();
  await shows(() => page.getByLabel('The chosen line').textContent(), 'gamma at error');
  sound(page);
});

// itldg/web-serial-debug#7: escape codes stood in the log.
test('colours of a terminal are colours that can be read in light and dark, and never codes or markup', async (t) => {
  for (const dark of [false, true]) {
    const page = await ran(t, 'colors', { dark, permissions: ['clipboard-read', 'clipboard-write'] });
    await until(async () => (await page.locator('[data-count]').getAttribute('data-count')) === '30', 'all lines');
    const text = await page.locator('main').textContent();
    assert.ok(!/\[\d*(;\d+)*m|\u001b|\[2J|\[K|title/.test(text.replace('\u241b[31m1.0', '')), 'no code is left');
    assert.ok(text.includes('red <b>no markup</b>'), 'a text is a text');
    assert.equal(await page.locator('.log b').count(), 0);
    const seen = new Map();
    for (const word of ['colour', 'style', 'cleared']) {
      await page.getByRole('searchbox', { name: 'Search the log' }).fill(word);
      await until(async () => (await rows(page)).every((row) => row.includes(word)), word);
      for (const top of [0, 130, 260, 400]) {
        await page.getByRole('listbox', { name: 'Logs', exact: true }).evaluate((list, top) => (list.scrollTop = top), top);
        await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
        const pieces = await page.getByRole('listbox', { name: 'Logs', exact: true }).locator('.ansi').evaluateAll((all) =>
          all.map((one) => {
            const style = getComputedStyle(one);
            return [one.textContent, { color: style.color, ground: style.backgroundColor, weight: style.fontWeight, line: style.textDecorationLine, slant: style.fontStyle }];
          }),
        );
        for (const [text, style] of pieces) seen.set(text, style);
      }
    }
    const luminance = (color) => {
      const [r, g, b] = color.match(/\d+/g).map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const field = dark ? 'rgb(15, 20, 27)' : 'rgb(255, 255, 255)';
    const contrast = ({ color, ground }) => {
      const [a, b] = [luminance(color), luminance(ground === 'rgba(0, 0, 0, 0)' ? field : ground)].sort();
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    };
    for (const [text, style] of seen) assert.ok(contrast(style) >= 4.5, `${text}, ${dark ? 'dark' : 'light'}: ${JSON.stringify(style)}`);
    const eight = [31, 32, 33, 34, 35, 36].map((code) => seen.get(`colour ${code}`).color);
    assert.equal(new Set(eight).size, 6, `six colours: ${eight}`);
    assert.ok(Number(seen.get('style 1').weight) >= 700);
    assert.equal(seen.get('style 3').slant, 'italic');
    assert.equal(seen.get('style 4').line, 'underline');
    assert.equal(seen.get('style 9').line, 'line-through');
    assert.notEqual(seen.get('style 41').ground, 'rgba(0, 0, 0, 0)');
    // Search and copies know the text without the codes.
    await page.getByRole('searchbox', { name: 'Search the log' }).fill('colour 31 plain');
    await shows(async () => (await rows(page)).length, 1);
    await page.getByRole('button', { name: 'Copy', exact: true }).click();
    await page.getByText('1 line copied.').waitFor();
    assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^\S+ info colour 31 plain\n$/);
    sound(page);
  }
});

test('200,000 log lines do not stop the page: no task of it is long, and it is drawn all the while', async (t) => {
  const page = await open(t, browser, odd.url);
  page.context().setDefaultTimeout(8 * PATIENCE);
  const { took, frames, tasks, longestTask, longestGap } = await flood(browser, page, 200_000);
  t.diagnostic(`${took.toFixed(0)} ms, ${frames} frames, the longest gap ${longestGap.toFixed(0)} ms; ${tasks} tasks, of which the longest took ${longestTask.toFixed(0)} ms of the processor`);
  assert.ok(tasks > 100, `${tasks} tasks were seen`);
  assert.ok(longestTask < 100, `a task took ${longestTask.toFixed(0)} ms`);
  assert.ok(frames > took / 200, `${frames} frames in ${took.toFixed(0)} ms`);
  assert.match(await page.locator('[data-count]').textContent(), /^5,000 lines\. [\d,]+ older lines were dropped\.$/);
  sound(page);
});
