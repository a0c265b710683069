// What stays in sight: pinned readings with limits and alarms, "Plot" beside numbers, results near their button, names that the rig knows.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import test from 'node:test';
import { HERE, launch, open, shows, sound, until, web } from './harness.mjs';

const browser = await launch();
const sim = await web('sim');
const named = await web(`exec:${process.execPath} ${join(HERE, 'names.mjs')}`);
const odd = await web(`exec:${process.execPath} ${join(HERE, 'extension.mjs')}`);

const choose = (page, operation) => page.getByRole('navigation', { name: 'Operations' }).getByRole('button', { name: operation, exact: true }).click();

async function run(page, operation) {
  await choose(page, operation);
  await page.getByRole('button', { name: `Run ${operation}` }).click();
  await page.getByRole('group', { name: /^Result of call/ }).getByText('succeeded').waitFor();
}

test('a pinned reading is green within its limits and red outside, raises an alarm that stays, and has a sparkline', async (t) => {
  const page = await open(t, browser, odd.url);
  await run(page, 'swing');
  await page.getByRole('button', { name: 'Pin volts' }).click();
  const reading = page.locator('.reading');
  await shows(() => reading.getAttribute('data-state'), 'none');
  await reading.getByText('3.300').waitFor();
  await reading.locator('summary').click();
  const most = reading.getByLabel('At most');
  await most.fill('many');
  await reading.getByText('This must be a number').waitFor();
  await most.fill('3.4 V');
  await reading.getByLabel('At least').fill('3000 mV');
  await shows(() => reading.getAttribute('data-state'), 'good');
  const color = () => reading.locator('.reading-value b').evaluate((one) => getComputedStyle(one).color);
  const green = await color();
  await page.getByLabel('Sound with an alarm').check();
  await page.getByRole('button', { name: 'Keep reading' }).click();
  await until(async () => (await reading.getAttribute('data-state')) === 'bad', 'the value leaves its limits');
  await reading.getByText('out of limits').waitFor();
  assert.notEqual(await color(), green);
  await page.getByRole('alert').getByText(/^Alarm: swing: volts was 3\.700, above 3\.4 V, at \d\d:\d\d:\d\d\.$/).waitFor();
  // The alarm stays when the value comes back, on every page, until somebody has seen it.
  await until(async () => (await reading.getAttribute('data-state')) === 'good', 'the value is back');
  await page.getByRole('button', { name: 'Pause reading' }).click();
  await page.getByRole('tab', { name: 'Transcript' }).click();
  await page.getByRole('alert').getByText('Alarm:').waitFor();
  await until(async () => (await page.title()).startsWith('Alarm - '), 'the tab says so');
  await page.getByRole('button', { name: 'Acknowledge' }).click();
  await shows(() => page.locator('.alarms').count(), 0);
  await page.getByRole('tab', { name: 'Live' }).click();
  const line = await reading.locator('.sparkline polyline').first().getAttribute('points');
  assert.ok(line.split(' ').length >= 2, line);
  // It is still there after a reload, with its limits.
  await page.reload();
  await shows(() => reading.getByLabel('At most').inputValue(), '3.4 V');
  await page.getByRole('tab', { name: 'Plots' }).click();
  await page.getByRole('button', { name: 'Remove swing' }).waitFor();
  await reading.getByRole('button', { name: 'Unpin' }).click();
  await shows(() => reading.count(), 0);
  // What was called for the reading only is called no longer.
  await shows(() => page.getByRole('button', { name: 'Remove swing' }).count(), 0);
  sound(page);
});

test('a reading that is no number any more is red where it has limits, and says why', async (t) => {
  const page = await open(t, browser, odd.url);
  await run(page, 'units');
  const result = page.getByRole('group', { name: /^Result of call/ });
  while ((await result.getByRole('button', { name: 'Pin meter' }).count()) === 0) await run(page, 'units');
  await result.getByRole('button', { name: 'Pin meter' }).click();
  const reading = page.locator('.reading');
  await reading.locator('summary').click();
  await reading.getByLabel('At least').fill('1');
  await page.getByRole('button', { name: 'Keep reading' }).click();
  await page.getByRole('alert').getByText('OL, “OL” is no number').waitFor();
  sound(page);
});

test('each numeric output has a button that plots it, and texts have none', async (t) => {
  const page = await open(t, browser, odd.url);
  await run(page, 'texts');
  assert.equal(await page.getByRole('button', { name: /^(Plot|Pin) / }).count(), 0);
  await run(page, 'units');
  const names = await page.getByRole('table', { name: 'Outputs' }).getByRole('button', { name: /^Plot / }).evaluateAll((all) => all.map((one) => one.ariaLabel));
  assert.deepEqual(names.slice(0, 5), ['Plot rail', 'Plot current', 'Plot flags', 'Plot comma', 'Plot state']);
  await page.getByRole('button', { name: 'Plot current' }).click();
  await page.getByRole('img', { name: /^Line chart of units: current\./ }).waitFor();
  const row = page.getByRole('row', { name: /units: current/ });
  assert.match(await row.getByRole('cell').first().textContent(), /^12\d mA$/);
  // The value of the call is in the plot already.
  assert.equal(await page.locator('[data-points]').getAttribute('data-points'), '1');
  sound(page);
});

test('a result comes into sight of the button that asked for it, however long the form is and however narrow the screen', async (t) => {
  for (const width of [1280, 390]) {
    const page = await open(t, browser, odd.url, { width, height: 800 });
    await choose(page, 'form');
    const button = page.getByRole('button', { name: 'Run form' });
    await button.scrollIntoViewIfNeeded();
    await button.click();
    const badge = page.getByRole('group', { name: /^Result of call/ }).getByText('succeeded');
    await badge.waitFor();
    const inSight = async (locator) => {
      const box = await locator.boundingBox();
      return box !== null && box.y >= 0 && box.y + box.height <= 800;
    };
    await until(() => inSight(badge), `the result at ${width} pixels`);
    await until(() => inSight(button), `the button is still there at ${width} pixels`);
    sound(page);
  }
});

test('names that identify lists are offered as choices, and any other name can be typed', async (t) => {
  const page = await open(t, browser, named.url);
  await choose(page, 'measure');
  const names = page.getByRole('group', { name: 'Known names' });
  await names.waitFor();
  assert.deepEqual(await names.getByRole('button').allTextContents(), ['3V3', '5V0', 'AUX', 'TEMP']);
  await names.getByRole('button', { name: 'TEMP' }).click();
  await shows(() => page.getByLabel('channel').inputValue(), 'TEMP');
  assert.equal(await names.getByRole('button', { name: 'TEMP' }).getAttribute('aria-pressed'), 'true');
  // Lists that only the description speaks of.
  for (const [operation, wanted] of [['gpio-write', ['GP14']], ['gpio-read', ['LED', 'LED2', 'GP15', 'GP14']], ['press', ['RESET', 'USER']], ['power', ['3V3', '5V0']]]) {
    await choose(page, operation);
    await until(async () => (await names.getByRole('button').allTextContents()).join() === wanted.join(), `${operation}: ${wanted}`);
  }
  // Asking for the names is no call of the user's.
  assert.equal(await page.getByRole('region', { name: 'History' }).count(), 0);
  // They are there for plots, too.
  await page.getByRole('tab', { name: 'Plots' }).click();
  await page.getByRole('group', { name: 'Known names' }).getByRole('button', { name: 'AUX' }).click();
  await shows(() => page.getByRole('textbox', { name: /^channel/ }).inputValue(), 'AUX');
  // Any other name is taken as it is typed.
  await page.getByRole('tab', { name: 'Live' }).click();
  await choose(page, 'measure');
  await page.getByLabel('channel').fill('another');
  await page.getByRole('button', { name: 'Run measure' }).click();
  await page.getByRole('table', { name: 'Outputs' }).getByText('another').waitFor();
  sound(page);
});

test('names that the schema lists are the only choices, in forms and for plots', async (t) => {
  const page = await open(t, browser, sim.url);
  const names = page.getByRole('group', { name: 'Known names' });
  for (const [operation, argument, wanted] of [['measure', 'channel', ['3V3', '5V0', 'AUX', 'TEMP']], ['gpio-write', 'pin', ['GP14']], ['gpio-read', 'pin', ['LED', 'LED2', 'GP15', 'GP14']], ['press', 'button', ['RESET', 'USER', 'BOOT']], ['power', 'rail', ['3V3', '5V0']]]) {
    await choose(page, operation);
    await page.getByRole('heading', { name: operation, exact: true }).waitFor();
    assert.deepEqual(await page.getByRole('combobox', { name: new RegExp(`^${argument} `) }).locator('option').allTextContents(), ['choose', ...wanted]);
    assert.equal(await names.count(), 0);
  }
  await page.getByRole('tab', { name: 'Plots' }).click();
  await page.getByRole('combobox', { name: /^channel / }).selectOption('AUX');
  await page.getByRole('button', { name: 'Add to the plot' }).click();
  await page.getByText('Added: measure channel=AUX.').waitFor();
  assert.equal(await names.count(), 0);
  sound(page);
});

test('the list of operations says below each name what it does', async (t) => {
  const page = await open(t, browser, sim.url);
  const list = page.getByRole('navigation', { name: 'Operations' });
  const box = await list.getByText('Switch a rail on or off').boundingBox();
  await page.mouse.click(box.x + 5, box.y + 5);
  await page.getByRole('heading', { name: 'power', exact: true }).waitFor();
  const described = await list.getByRole('button', { name: 'press', exact: true }).evaluate((one) => document.getElementById(one.getAttribute('aria-describedby')).textContent);
  assert.equal(described, 'Press a button for a while');
  sound(page);
});
