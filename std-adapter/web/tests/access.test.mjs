// Who uses the page how: keyboard, screen reader, contrast, light and dark, and a narrow screen. The pictures come from here.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import test from 'node:test';
import { HERE, chosen, launch, open, picture, ROOT, run, scratch, shows, sound, until, web } from './harness.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const browser = await launch();
const folder = scratch();
const server = await web('sim', '--evals', join(ROOT, 'firmware-example/evals'), '--runs', scratch());
const choosing = await web();
const odd = await web(`exec:${process.execPath} ${join(HERE, 'extension.mjs')}`);

const recording = join(folder, 'session.jsonl');
const lines = ['initialize', 'self-test', '{bad', 'measure', 'identify'].map((name, at) =>
  name.startsWith('{') ? name : JSON.stringify({ jsonrpc: '2.0', id: at, ...(name === 'initialize' ? { method: name, params: { protocolVersion: '0.0.1' } } : { method: 'execute', params: { operation: name, args: name === 'measure' ? { channel: 'no such' } : {}, context: {} } }) }),
);
await run(['monitor', '--record', recording, 'sim'], `${lines.join('\n')}\n`);

/** Which server a state is of, if not the simulated rig. */
const SERVERS = { choose: choosing, ...Object.fromEntries(['errors', 'log-colors', 'long-form', 'readings', 'plots-units', 'plots-near', 'plots-texts'].map((name) => [name, odd])) };
const LOOKS = { light: {}, dark: { dark: true }, forced: { forced: true }, 'forced-dark': { forced: true, dark: true } };

/** The states of the page that are looked at, in every size and colour. */
const STATES = {
  failed: async (page) => {
    await page.getByRole('button', { name: 'wait-for', exact: true }).click();
    await page.getByLabel('channel').selectOption('AUX');
    // Only the extension knows that this is wrong.
    await page.getByLabel('min').fill('4');
    await page.getByLabel('max').fill('3');
    await page.getByRole('button', { name: 'Run wait-for' }).click();
    await page.getByRole('group', { name: /^Result/ }).getByText('refused').waitFor();
  },
  'running-logs': async (page) => {
    await page.getByRole('button', { name: 'self-test', exact: true }).click();
    await page.getByRole('button', { name: 'Run self-test' }).click();
    await page.getByRole('group', { name: /^Result/ }).getByText('3V3 off: passed').waitFor();
  },
  'log-colors': async (page) => {
    await page.getByRole('button', { name: 'colors', exact: true }).click();
    await page.getByRole('button', { name: 'Run colors' }).click();
    await page.getByRole('group', { name: /^Result/ }).getByText('succeeded').waitFor();
    await page.getByRole('searchbox', { name: 'Search the log' }).fill('style');
  },
  'long-form': async (page) => {
    await page.getByRole('button', { name: 'form', exact: true }).click();
    await page.getByRole('button', { name: 'Run form' }).click();
    await page.getByRole('group', { name: /^Result/ }).getByText('succeeded').waitFor();
  },
  readings: async (page) => {
    await page.getByRole('button', { name: 'swing', exact: true }).click();
    await page.getByRole('button', { name: 'Run swing' }).click();
    await page.getByRole('button', { name: 'Pin volts' }).click();
    await page.getByRole('button', { name: 'near', exact: true }).click();
    await page.getByRole('button', { name: 'Run near' }).click();
    await page.getByRole('button', { name: 'Pin volts' }).click();
    await page.getByRole('button', { name: 'units', exact: true }).click();
    await page.getByRole('button', { name: 'Run units' }).click();
    await page.getByRole('button', { name: 'Pin rail' }).click();
    for (const at of [0, 1]) {
      const one = page.locator('.reading').nth(at);
      await one.locator('summary').click();
      await one.getByLabel('At least').fill('3.2');
      await one.getByLabel('At most').fill('3.4');
    }
    await page.getByRole('button', { name: 'Keep reading' }).click();
    await page.getByRole('alert').getByText('above 3.4').waitFor();
    await page.getByRole('button', { name: 'Pause reading' }).click();
  },
  'plots-units': async (page) => {
    await page.getByRole('button', { name: 'units', exact: true }).click();
    await page.getByRole('button', { name: 'Run units' }).click();
    await page.getByRole('button', { name: 'Plot rail' }).click();
    const series = page.getByRole('table', { name: 'Series and their values' });
    for (const name of ['units: current', 'units: comma', 'units: meter']) await series.getByRole('checkbox', { name }).check();
    await page.getByLabel('Rate').selectOption({ label: '10 a second' });
    await page.getByRole('button', { name: 'Start' }).click();
    await until(() => page.locator('[data-samples]').evaluate((one) => Number(one.dataset.samples) >= 25), 'samples');
    await page.getByRole('button', { name: 'Stop' }).click();
    const box = await page.locator('.u-over').boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await series.getByRole('columnheader', { name: /^At / }).waitFor();
  },
  'plots-near': async (page) => {
    await page.getByRole('button', { name: 'near', exact: true }).click();
    await page.getByRole('button', { name: 'Run near' }).click();
    await page.getByRole('button', { name: 'Plot volts' }).click();
    await page.getByLabel('Rate').selectOption({ label: '10 a second' });
    await page.getByRole('button', { name: 'Start' }).click();
    await until(() => page.locator('[data-samples]').evaluate((one) => Number(one.dataset.samples) >= 12), 'samples');
    await page.getByRole('button', { name: 'Stop' }).click();
  },
  'plots-texts': async (page) => {
    await page.getByRole('tab', { name: 'Plots' }).click();
    await page.getByLabel('Operation').selectOption({ label: 'texts' });
    await page.getByRole('button', { name: 'Add to the plot' }).click();
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByText('5 outputs are not drawn').waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
  },
  'plots-empty': async (page) => {
    await page.getByRole('tab', { name: 'Plots' }).click();
    await page.getByText('Nothing is sampled yet').waitFor();
  },
  disconnected: async (page) => {
    await page.getByRole('button', { name: 'Disconnect', exact: true }).click();
    await page.getByRole('heading', { name: 'Connect to a rig' }).waitFor();
  },
  choose: async (page) => page.getByRole('button', { name: 'Connect to sim' }).waitFor(),
  live: async (page) => {
    await page.getByRole('button', { name: 'power', exact: true }).click();
    await page.getByLabel('rail').selectOption('3V3');
    await page.getByRole('combobox', { name: /^on / }).selectOption('true');
    await page.getByRole('button', { name: 'Run power' }).click();
    await page.getByText('succeeded').first().waitFor();
    await page.getByRole('button', { name: 'measure', exact: true }).click();
    await page.getByLabel('channel').selectOption('3V3');
    await page.getByRole('button', { name: 'Run measure' }).click();
    await page.getByRole('group', { name: /^Result/ }).getByText('3V3 is at').waitFor();
  },
  errors: async (page) => {
    await page.getByRole('button', { name: 'odd', exact: true }).click();
    await page.getByRole('button', { name: 'Add an entry to days' }).click();
    await page.getByLabel(/^ratio/).fill('2');
    await page.getByLabel(/^any/).fill('{');
    await page.getByRole('button', { name: 'Run odd' }).click();
    await page.getByText('This is not JSON').waitFor();
  },
  plots: async (page) => {
    await page.getByRole('tab', { name: 'Plots' }).click();
    for (const channel of ['TEMP', 'AUX']) {
      await page.getByRole('combobox', { name: /^channel/ }).selectOption(channel);
      await page.getByRole('button', { name: 'Add to the plot' }).click();
    }
    await page.getByLabel('Rate').selectOption({ label: '10 a second' });
    await page.getByRole('button', { name: 'Start' }).click();
    await until(() => page.locator('[data-samples]').evaluate((one) => Number(one.dataset.samples) >= 12), 'samples');
    await page.getByRole('button', { name: 'Pause' }).click();
    await new Promise((done) => setTimeout(done, 400));
    await page.getByRole('button', { name: 'Go on' }).click();
    await until(() => page.locator('[data-samples]').evaluate((one) => Number(one.dataset.samples) >= 24), 'samples');
    await page.getByRole('button', { name: 'Stop' }).click();
  },
  transcript: async (page) => {
    await page.getByRole('tab', { name: 'Transcript' }).click();
    await page.getByLabel('Transcript file').setInputFiles(recording);
    await page.locator('[data-done="true"]').waitFor();
    await page.getByRole('listbox', { name: 'Cards' }).getByRole('option').nth(1).click();
    await page.getByText('boot: passed').waitFor();
  },
  opening: async (page) => {
    await page.getByRole('tab', { name: 'Transcript' }).click();
    await page.getByRole('heading', { name: 'Open a transcript' }).waitFor();
  },
  evals: async (page) => {
    await page.getByRole('tab', { name: 'Evals' }).click();
    await page.getByRole('button', { name: 'Run rails' }).click();
    await page.getByText('3 of 3 tasks passed.').waitFor();
    await page.getByRole('region', { name: 'Trend of a value' }).waitFor();
  },
};

// Each size and each colour is in one of these; `.ci/long looks` has all.
const IN_THE_GATE = { 1280: ['light', 'forced-dark'], 390: ['dark', 'forced'] };

for (const width of [1280, 390]) {
  for (const [look, options] of Object.entries(LOOKS)) {
    if (process.env.RIGLINE_LOOKS !== 'all' && !IN_THE_GATE[width].includes(look)) continue;
    test(`at ${width} pixels, ${look}, axe finds nothing in any state, nothing is wider than the screen, and no table breaks a word`, async (t) => {
      for (const [name, reach] of Object.entries(STATES)) {
        const { url } = SERVERS[name] ?? server;
        const page = await open(t, browser, url, { width, height: width === 390 ? 844 : 900, ...options });
        if (name !== 'choose') await page.getByText('connected', { exact: true }).waitFor();
        await reach(page);
        await page.evaluate(() => scrollTo(0, 0));
        await picture(page, `${name}-${width}-${look}`, true);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${name}: ${wide} pixels wider than the screen`);
        assert.deepEqual(await page.evaluate(broken), [], `${name}: words that are broken`);
        assert.deepEqual(await page.evaluate(empty), [], `${name}: boxes without anything in them`);
        const found = await check(page);
        assert.deepEqual(found, [], name);
        sound(page);
        await page.context().close();
      }
    });
  }
}

/** Words in cells, headings and buttons that stand on two lines though a line of their own would hold them. */
function broken() {
  const found = [];
  for (const element of document.querySelectorAll('th, td, button, h2, h3, summary, label, .badge')) {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      for (const { 0: word, index } of node.data.matchAll(/(?<!\S)\S{2,16}(?!\S)/g)) {
        const range = document.createRange();
        range.setStart(node, index);
        range.setEnd(node, index + word.length);
        const lines = new Set([...range.getClientRects()].filter((one) => one.width > 0).map((one) => Math.round(one.top)));
        if (lines.size > 1) found.push(word);
      }
    }
  }
  return found;
}

/** Boxes with a border that have neither a text nor a picture. */
function empty() {
  return [...document.querySelectorAll('.panel, .virtual, .scroll, fieldset, .detail')].filter((one) => one.textContent.trim() === '' && !one.querySelector('canvas, svg, input')).map((one) => one.className);
}

/** What axe finds. Its script is run by the test, which the page's policy does not hold back. */
async function check(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { runOnly: { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] } }));
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 200)} ${node.failureSummary?.replaceAll('\n', ' ')}`));
}

test('everything_works_by_keyboard', async (t) => {
  const page = await open(t, browser, server.url);
  await page.getByText('connected', { exact: true }).waitFor();
  const focus = () => page.evaluate(() => `${document.activeElement.tagName} ${document.activeElement.textContent.trim() || document.activeElement.id}`);
  await page.keyboard.press('Tab');
  assert.match(await focus(), /^A Go to the content/);
  await page.keyboard.press('Tab');
  await shows(focus, 'BUTTON Live');
  await page.keyboard.press('ArrowRight');
  await shows(focus, 'BUTTON Plots');
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('Tab');
  // Through the page to the operation, and to its fields.
  for (let at = 0; at < 30 && (await focus()) !== 'BUTTON measure'; at += 1) await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  for (let at = 0; at < 30 && !(await focus()).startsWith('SELECT choose'); at += 1) await page.keyboard.press('Tab');
  // A choice is found by its first letters.
  await page.keyboard.type('TEMP');
  await shows(() => chosen(page.getByLabel('channel')), 'TEMP');
  for (let at = 0; at < 30 && !(await focus()).startsWith('INPUT'); at += 1) await page.keyboard.press('Tab');
  await page.keyboard.type('4');
  await page.keyboard.press('Enter');
  await page.getByText('TEMP is at').first().waitFor();
  const outputs = page.getByRole('table', { name: 'Outputs' });
  await shows(() => outputs.getByRole('row', { name: /^samples/ }).locator('td').textContent(), '4');
  // What has happened is said to a screen reader.
  await until(async () => /^measure: succeeded\. TEMP is at/.test(await page.locator('.notice').textContent()), 'the notice');
  // The focus is visible.
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(outline, 'solid');
  sound(page);
});

test('colours_follow_the_system_or_the_choice_and_the_choice_is_kept', async (t) => {
  const page = await open(t, browser, server.url);
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await page.emulateMedia({ colorScheme: 'dark' });
  await until(async () => (await ground()) !== light, 'dark as the system');
  await page.getByRole('combobox', { name: 'Colours' }).selectOption('light');
  await until(async () => (await ground()) === light, 'light as chosen');
  await page.reload();
  await page.getByText('connected', { exact: true }).waitFor();
  await shows(ground, light);
  sound(page);
});

test('the_files_work_on_any_web_server_in_any_folder', async (t) => {
  const files = join(HERE, '../dist');
  const kinds = { html: 'text/html', js: 'text/javascript', css: 'text/css', wasm: 'application/wasm', svg: 'image/svg+xml' };
  const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'";
  const plain = createServer((request, response) => {
    const name = request.url.replace(/^\/a\/folder\//, '').replace(/\?.*/, '') || 'index.html';
    if (!request.url.startsWith('/a/folder/') || !existsSync(join(files, name))) return response.writeHead(404).end();
    response.writeHead(200, { 'content-type': kinds[name.split('.').pop()], 'content-security-policy': policy }).end(readFileSync(join(files, name)));
  });
  await new Promise((done) => plain.listen(0, '127.0.0.1', done));
  t.after(() => plain.close());
  const page = await open(t, browser, `http://127.0.0.1:${plain.address().port}/a/folder/#view=transcript`);
  await page.getByLabel('Or paste lines').fill('{"op":"measure","args":{}}');
  await page.getByRole('button', { name: 'Show the pasted lines' }).click();
  await page.locator('[data-done="true"]').waitFor();
  await page.getByRole('tab', { name: 'Live' }).click();
  await page.getByRole('button', { name: 'Choose a port …' }).waitFor();
  await page.getByRole('tab', { name: 'Evals' }).click();
  await page.getByText('The server of this page has no evals.').waitFor();
  assert.equal(await page.getByRole('alert').count(), 0);
  sound(page);
});
