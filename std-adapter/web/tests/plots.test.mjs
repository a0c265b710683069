// The page "Plots".
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { HERE, launch, open, picture, scratch, shows, sound, until, web } from './harness.mjs';

const browser = await launch();

async function plots(page) {
  await page.getByText('connected', { exact: true }).waitFor();
  await page.getByRole('tab', { name: 'Plots' }).click();
}

async function add(page, channel) {
  await page.getByRole('combobox', { name: /^channel/ }).selectOption(channel);
  await page.getByRole('button', { name: 'Add to the plot' }).click();
}

const number = (page, name) => page.locator('[data-samples]').evaluate((element, name) => Number(element.dataset[name]), name);

async function csv(page) {
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save as CSV' }).click()]);
  const file = join(scratch(), 'plot.csv');
  await download.saveAs(file);
  return readFileSync(file, 'utf8').trimEnd().split('\r\n').map((line) => line.split(','));
}

test('numeric_outputs_are_polled_drawn_paused_zoomed_and_saved', async (t) => {
  const server = await web('sim');
  const page = await open(t, browser, server.url);
  await plots(page);
  await add(page, '3V3');
  await add(page, 'TEMP');
  await page.getByLabel('Rate').selectOption({ label: '10 a second' });
  await page.getByRole('button', { name: 'Start' }).click();
  await until(async () => (await number(page, 'samples')) >= 10, 'ten samples');
  // Several series, of which one can be left out.
  const series = page.getByRole('table', { name: 'Series and their values' });
  assert.deepEqual(await series.getByRole('rowheader').allTextContents(), ['measure channel=3V3: volts', 'measure channel=3V3: min', 'measure channel=3V3: max', 'measure channel=3V3: samples', 'measure channel=TEMP: celsius', 'measure channel=TEMP: min', 'measure channel=TEMP: max', 'measure channel=TEMP: samples']);
  const isDrawn = await series.getByRole('checkbox').evaluateAll((boxes) => boxes.map((box) => box.checked));
  assert.deepEqual(isDrawn, [true, false, false, false, true, false, false, false]);
  await series.getByRole('checkbox', { name: 'measure channel=3V3: max' }).check();
  const chart = page.getByRole('img', { name: /^Line chart of measure channel=3V3: volts; measure channel=3V3: max; measure channel=TEMP: celsius/ });
  await chart.waitFor();
  // Something is drawn, in the colour of the third series.
  const colored = () => chart.locator('canvas').evaluate((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let count = 0;
    for (let at = 0; at < data.length; at += 4) if (data[at] === 0x11 && data[at + 1] === 0x63 && data[at + 2] === 0x29) count += 1;
    return count;
  });
  await until(async () => (await colored()) > 100, 'a line is drawn');

  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('button', { name: 'Go on' }).waitFor();
  const paused = await number(page, 'samples');
  await new Promise((done) => setTimeout(done, 600));
  assert.equal(await number(page, 'samples'), paused, 'a paused plot takes no samples');
  await page.getByRole('button', { name: 'Go on' }).click();
  await until(async () => (await number(page, 'samples')) >= paused + 5, 'it goes on');
  await page.getByRole('button', { name: 'Stop' }).click();
  await picture(page, 'plots-1280-light');

  const rows = await csv(page);
  assert.deepEqual(rows[0], ['time', 'measure channel=3V3: volts', 'measure channel=3V3: max', 'measure channel=TEMP: celsius']);
  assert.match(rows[1][0], /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  const gaps = rows.filter((row) => row[1] === '');
  assert.ok(gaps.length >= 1, 'the pause is a gap');
  assert.ok(rows.slice(1).every((row) => row[1] === '' || /^0\.0\d*$/.test(row[1])), 'values as they came');

  // Zoom: dragging shows a part, the buttons move it, and all is shown again.
  const extent = () => page.evaluate(() => document.querySelector('.u-over')?.parentElement && [...document.querySelectorAll('.canvas canvas')].map((canvas) => canvas.toDataURL()).join());
  const whole = await extent();
  const box = await page.locator('.u-over').boundingBox();
  await page.mouse.move(box.x + box.width * 0.3, box.y + 50);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 60, { steps: 5 });
  // The selection follows the mouse with the next frame.
  await until(async () => (await page.locator('.u-select').boundingBox())?.width > 50, 'a selection');
  await page.mouse.up();
  await until(async () => (await extent()) !== whole, 'a part');
  const part = await extent();
  await page.getByRole('button', { name: 'Later' }).click();
  await until(async () => (await extent()) !== part, 'a later part');
  await page.getByRole('button', { name: 'Show all' }).click();
  await until(async () => (await extent()) === whole, 'all again');
  await page.getByRole('button', { name: 'Zoom in' }).click();
  await until(async () => (await extent()) !== whole, 'a part by the keyboard');

  await page.getByRole('button', { name: 'Remove measure channel=TEMP' }).click();
  await shows(() => series.getByRole('row').count(), 5);
  sound(page);
});

test('samples_that_were_missed_are_counted_and_are_gaps', async (t) => {
  const server = await web('sim');
  const page = await open(t, browser, server.url);
  await plots(page);
  await add(page, 'AUX');
  await page.getByLabel('Rate').selectOption({ label: '20 a second' });
  await page.getByRole('button', { name: 'Start' }).click();
  await until(async () => (await number(page, 'samples')) >= 5, 'samples');
  // A call of half a second keeps the rig busy meanwhile.
  await page.getByRole('tab', { name: 'Live' }).click();
  await page.getByRole('button', { name: 'press', exact: true }).click();
  await page.getByLabel('button').selectOption('USER');
  await page.getByRole('textbox', { name: /^ms / }).fill('600');
  await page.getByRole('button', { name: 'Run press' }).click();
  await page.getByRole('group', { name: /^Result of call/ }).getByText('succeeded').waitFor();
  await page.getByRole('tab', { name: 'Plots' }).click();
  await until(async () => (await number(page, 'missed')) >= 8, '8 of 12 samples were missed');
  await page.getByText(/missed samples? \(shown as gaps\)/).waitFor();
  const before = await number(page, 'samples');
  await until(async () => (await number(page, 'samples')) >= before + 5, 'it goes on');
  await page.getByRole('button', { name: 'Stop' }).click();
  const rows = await csv(page);
  const at = rows.findIndex((row) => row[1] === '');
  assert.ok(at > 0 && at < rows.length - 1, 'a gap in the middle');
  sound(page);
});

test('a_failing_source_and_a_lost_connection_are_said', async (t) => {
  const server = await web('sim');
  const page = await open(t, browser, server.url);
  await plots(page);
  await page.getByLabel('Operation').selectOption({ label: 'wait-for' });
  // Only the extension knows that this is wrong.
  await page.getByRole('textbox', { name: /^min / }).fill('4');
  await page.getByRole('textbox', { name: /^max / }).fill('3');
  await add(page, 'AUX');
  await page.getByRole('button', { name: 'Start' }).click();
  await page.getByRole('alert').getByText('wait-for channel=AUX, min=4, max=3: args.min: 4.000 is above args.max').waitFor();
  server.child.kill();
  await page.getByText('Sampling goes on when there is one again.').waitFor();
  sound(page, /WebSocket connection to|ERR_CONNECTION_REFUSED/);
});

test('names_of_outputs_cannot_become_formulas_in_the_csv', async (t) => {
  const server = await web(`exec:${process.execPath} ${join(HERE, 'extension.mjs')}`);
  const page = await open(t, browser, server.url);
  await plots(page);
  await page.getByLabel('Operation').selectOption({ label: '=formula' });
  await page.getByRole('button', { name: 'Add to the plot' }).click();
  await page.getByRole('button', { name: 'Start' }).click();
  await until(async () => (await number(page, 'samples')) >= 1, 'a sample');
  await page.getByRole('button', { name: 'Stop' }).click();
  assert.deepEqual((await csv(page))[0], ['time', '"\'=formula: =1+1"']);
  sound(page);
});

test('numbers_beyond_every_axis_are_gaps_and_the_page_goes_on', async (t) => {
  const server = await web(`exec:${process.execPath} ${join(HERE, 'extension.mjs')}`);
  const page = await open(t, browser, server.url);
  await plots(page);
  await page.getByLabel('Operation').selectOption({ label: 'extremes' });
  await page.getByRole('button', { name: 'Add to the plot' }).click();
  await page.getByLabel('Rate').selectOption({ label: '10 a second' });
  await page.getByRole('button', { name: 'Start' }).click();
  await until(async () => (await number(page, 'samples')) >= 2, 'samples');
  const series = page.getByRole('table', { name: 'Series and their values' });
  assert.deepEqual(await series.getByRole('rowheader').allTextContents(), ['extremes: value', 'extremes: large', 'extremes: small']);
  for (const name of ['extremes: large', 'extremes: small']) await series.getByRole('checkbox', { name }).check();
  const before = await number(page, 'samples');
  await until(async () => (await number(page, 'samples')) >= before + 5, 'it goes on');
  await page.getByRole('button', { name: 'Stop' }).click();
  sound(page);
});

async function odd(t, operation, options) {
  const server = await web(`exec:${process.execPath} ${join(HERE, 'extension.mjs')}`);
  const page = await open(t, browser, server.url, options);
  await plots(page);
  await page.getByLabel('Operation').selectOption({ label: operation });
  await page.getByRole('button', { name: 'Add to the plot' }).click();
  await page.getByText(`Added: ${operation}.`).waitFor();
  await page.getByLabel('Rate').selectOption({ label: '10 a second' });
  return page;
}

async function sample(page, count) {
  await page.getByRole('button', { name: 'Start' }).click();
  await until(async () => (await number(page, 'samples')) >= count, `${count} samples`);
  await page.getByRole('button', { name: 'Stop' }).click();
}

const row = (page, name) => page.getByRole('row', { name: new RegExp(`^${name}`) });

// Plotters of lab tools refuse or misread such values: arduino/arduino-ide issues about the serial plotter.
test('values with units, decimal commas, in hexadecimal and as states are drawn, and what is no number is explained', async (t) => {
  const page = await odd(t, 'units');
  await sample(page, 6);
  const series = page.getByRole('table', { name: 'Series and their values' });
  const names = ['rail', 'current', 'flags', 'comma', 'state', 'meter', 'painted'].map((name) => `units: ${name}`);
  assert.deepEqual(await series.getByRole('rowheader').allTextContents(), names);
  for (const name of names.slice(1)) await series.getByRole('checkbox', { name }).check();
  const units = await series.locator('tbody tr').evaluateAll((rows) => rows.map((one) => one.cells[4].textContent));
  assert.deepEqual(units, ['V', 'mA', '', '', '', '', 'A']);
  // The sample that is no number is a gap with its text, and the newest one says why.
  await until(async () => {
    await sample(page, (await number(page, 'samples')) + 1);
    return /OL.*not drawn: “OL” is no number/.test(await row(page, 'units: meter').textContent());
  }, 'the reason');
  const rows = await csvText(page);
  assert.match(rows, /^time,units: rail,units: current,units: flags,units: comma,units: state,units: meter,units: painted\r\n/);
  for (const line of rows.trimEnd().split('\r\n').slice(1).filter((line) => /,\d/.test(line))) assert.match(line, /Z,3\.3\d\d V,12\d mA,0x1f,"3,\d",(on|off),(1\.25|OL),\d\.5 A$/);
  sound(page);
});

async function csvText(page) {
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save as CSV' }).click()]);
  const file = join(scratch(), 'plot.csv');
  await download.saveAs(file);
  return readFileSync(file, 'utf8');
}

test('table and file have the digits of the device, with those that a double cannot hold', async (t) => {
  const page = await odd(t, 'wide');
  await sample(page, 4);
  const series = page.getByRole('table', { name: 'Series and their values' });
  for (const name of ['wide: volts', 'wide: exponent']) await series.getByRole('checkbox', { name }).check();
  const cells = await row(page, 'wide: count').getByRole('cell').allTextContents();
  assert.deepEqual(cells.slice(1, 3), ['9007199254740991', '9007199254740993']);
  assert.deepEqual((await row(page, 'wide: volts').getByRole('cell').allTextContents()).slice(0, 4), ['0.000', '0.000', '0.000', 'V']);
  const lines = (await csvText(page)).trimEnd().split('\r\n').slice(1).filter((line) => !line.endsWith(',,,'));
  assert.ok(lines.some((line) => line.includes(',9007199254740993,')), lines[0]);
  for (const line of lines) assert.match(line, /Z,900719925474099[123],0\.000,1\.50E-03$/);
  sound(page);
});

test('an operation without a number says of each output why nothing is drawn', async (t) => {
  const page = await odd(t, 'texts');
  await sample(page, 1);
  await page.getByText('No output is a number. Below stands why.').waitFor();
  const why = await page.locator('.not-drawn li').allTextContents();
  assert.deepEqual(why, ['texts: name: “board” is no number', 'texts: list: “[1,2]” has several values', 'texts: empty: the text is empty', 'texts: address: “192.168.1.10” is no number', 'texts: time: “12:30” is no number']);
  sound(page);
});

test('the cursor shows the values of all series at its time, by mouse and by keyboard', async (t) => {
  const page = await odd(t, 'units');
  await sample(page, 8);
  const series = page.getByRole('table', { name: 'Series and their values' });
  const box = await page.locator('.u-over').boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await series.getByRole('columnheader', { name: /^At \d\d:\d\d:\d\d\.\d{3}$/ }).waitFor();
  const at = () => series.locator('tbody tr').evaluateAll((rows) => rows.map((one) => one.cells[2].textContent));
  const [rail, current, flags, comma, state, meter] = await at();
  assert.match(`${rail} ${current} ${flags} ${comma} ${state} ${meter}`, /^3\.3\d\d V 12\d mA 0x1f 3,\d (on|off) (1\.25|OL)$/);
  // Each step of the keyboard is the next sample.
  await page.mouse.move(5, 5);
  await page.getByRole('group', { name: /^Chart/ }).focus();
  await page.keyboard.press('Home');
  const first = await series.getByRole('columnheader', { name: /^At / }).textContent();
  const seen = new Set([first]);
  for (let step = 0; step < 3; step += 1) {
    await page.keyboard.press('ArrowRight');
    await until(async () => !seen.has(await series.getByRole('columnheader', { name: /^At / }).textContent()), 'the next sample');
    seen.add(await series.getByRole('columnheader', { name: /^At / }).textContent());
  }
  assert.deepEqual([...seen], [...seen].sort());
  await page.keyboard.press('Escape');
  await series.getByRole('columnheader', { name: /^At / }).waitFor({ state: 'detached' });
  sound(page);
});

test('a window shows the last seconds only, and moves with the samples', async (t) => {
  const page = await odd(t, 'near');
  // The texts on the axis, as they are drawn.
  await page.evaluate(() => {
    globalThis.times = [];
    const { fillText, clearRect } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.clearRect = function (...given) {
      globalThis.times = [];
      clearRect.apply(this, given);
    };
    CanvasRenderingContext2D.prototype.fillText = function (text, ...given) {
      if (/^\d\d:\d\d/.test(text)) globalThis.times.push(text);
      fillText.call(this, text, ...given);
    };
  });
  const seconds = async () => {
    const times = await page.evaluate(() => globalThis.times);
    const [first, last] = [times[0], times.at(-1)].map((time) => time.split(':').reduce((sum, part) => sum * 60 + Number(part), 0));
    return last - first;
  };
  await page.getByRole('button', { name: 'Start' }).click();
  await until(async () => (await number(page, 'samples')) >= 30, '30 samples');
  await page.getByLabel('Show', { exact: true }).selectOption({ label: 'the last minute' });
  await until(async () => (await seconds()) >= 40, 'a minute, though there are three seconds of samples');
  await page.getByLabel('Show', { exact: true }).selectOption({ label: 'everything' });
  await until(async () => (await seconds()) < 20, 'everything');
  await page.getByRole('button', { name: 'Stop' }).click();
  sound(page);
});

test('two units have two axes, and the user moves a series to the other one', async (t) => {
  const page = await odd(t, 'units', { width: 390 });
  await sample(page, 4);
  const left = () => page.locator('.u-over').evaluate((one) => one.getBoundingClientRect().left - one.closest('.canvas').getBoundingClientRect().left);
  const right = () => page.locator('.u-over').evaluate((one) => one.closest('.canvas').getBoundingClientRect().right - one.getBoundingClientRect().right);
  const alone = await right();
  await page.getByRole('checkbox', { name: 'units: current' }).check();
  await until(async () => (await right()) > alone, 'an axis on the right');
  const two = await right();
  await page.getByLabel('Axis of units: current').selectOption('left');
  await until(async () => (await right()) < two, 'one axis');
  assert.ok((await left()) > 30);
  sound(page);
});
