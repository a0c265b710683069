// The chart, with series that no rig should have: labels and pixels are read back from its canvas.
import assert from 'node:assert/strict';
import test from 'node:test';
import { bench } from './chart.mjs';
import { launch, open, sound, undo } from './harness.mjs';

const browser = await launch();
const { url, close } = await bench();
undo(close);

/** The same numbers in every run. */
function generator(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Makers of odd series: each gives the texts of a device, of which null is no sample. */
const KINDS = {
  nearConstant: (random, n) => {
    const [base, digits] = [(random() - 0.3) * 10 ** Math.floor(random() * 6), 2 + Math.floor(random() * 7)];
    return Array.from({ length: n }, () => (base + Math.round(random() * 9) * 10 ** -digits).toFixed(digits));
  },
  constant: (random, n) => Array(n).fill(((random() - 0.5) * 10 ** Math.floor(random() * 30 - 15)).toPrecision(6)),
  zero: (_, n) => Array(n).fill('0.000'),
  tiny: (random, n) => Array.from({ length: n }, () => `${(random() * 9).toFixed(3)}e-${6 + Math.floor(random() * 3)}`),
  tiniest: (random, n) => Array.from({ length: n }, () => `${Math.ceil(random() * 9)}e-${280 + Math.floor(random() * 40)}`),
  huge: (random, n) => {
    const power = 6 + Math.floor(random() * 290);
    return Array.from({ length: n }, () => `${(random() * 18 - 9).toFixed(4)}e${power}`);
  },
  wideIntegers: (random, n) => Array.from({ length: n }, () => String(9007199254740992n + BigInt(Math.floor(random() * 90)))),
  nearHuge: (random, n) => {
    const base = BigInt(10 ** (9 + Math.floor(random() * 6)));
    return Array.from({ length: n }, () => String(base + BigInt(Math.floor(random() * 20))));
  },
  manyDecades: (random, n) => Array.from({ length: n }, () => `1e${Math.floor(random() * 20 - 10)}`),
  negative: (random, n) => Array.from({ length: n }, () => (-random() * 1000).toFixed(2)),
  acrossZero: (random, n) => Array.from({ length: n }, () => ((random() - 0.5) * 1e-3).toExponential(4)),
  units: (random, n) => Array.from({ length: n }, () => `${(3 + random()).toFixed(3)} V`),
  milli: (random, n) => Array.from({ length: n }, (_, at) => (at % 2 ? `${(3000 + random() * 600).toFixed(0)} mV` : `${(3 + random() * 0.6).toFixed(3)} V`)),
  commas: (random, n) => Array.from({ length: n }, () => (random() * 9).toFixed(1).replace('.', ',')),
  hexadecimal: (random, n) => Array.from({ length: n }, () => `0x${Math.floor(random() * 65536).toString(16)}`),
  states: (random, n) => Array.from({ length: n }, () => (random() < 0.5 ? 'on' : 'off')),
  withWords: (random, n) => Array.from({ length: n }, () => (random() < 0.4 ? ['n/a', 'OL', 'nan', ''][Math.floor(random() * 4)] : (random() * 5).toFixed(2))),
  missing: (random, n) => Array.from({ length: n }, () => (random() < 0.5 ? null : (random() * 5).toFixed(2))),
  isolated: (random, n) => Array.from({ length: n }, (_, at) => (at % 2 ? null : (random() * 5).toFixed(2))),
  one: (random, n) => Array.from({ length: n }, (_, at) => (at === n >> 1 ? (random() * 50).toFixed(1) : null)),
  spike: (random, n) => Array.from({ length: n }, (_, at) => (at === n >> 1 ? '1e9' : (random() * 5).toFixed(2))),
};

/** A label may have its unit. */
const valueAt = (label) => Number(label.split(' ')[0]);
const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

/** What must hold of every picture with one scale. */
function judge(said, drawn, count) {
  const { written, canvas, plot, values } = drawn;
  assert.ok(written.length > 0, `${said}: texts`);
  for (const one of written.filter((one) => one.text !== '')) {
    assert.ok(one.left >= 0 && one.right <= canvas.width && one.top >= -1 && one.bottom <= canvas.height + 1, `${said}: “${one.text}” is cut: ${JSON.stringify(one)} in ${JSON.stringify(canvas)}`);
  }
  for (const [at, one] of written.entries()) {
    for (const other of written.slice(at + 1)) assert.ok(!overlap(one, other), `${said}: “${one.text}” lies on “${other.text}”`);
  }
  const marks = written.filter((one) => one.right < plot.left && /^[-\d]/.test(one.text));
  const times = written.filter((one) => one.top > plot.top + plot.height && /^\d/.test(one.text));
  assert.ok(times.length >= (count > 1 ? 2 : 1), `${said}: ${times.length} times`);
  assert.ok(marks.length >= 2, `${said}: ${marks.length} marks: ${written.map((one) => one.text)}`);
  assert.equal(new Set(marks.map((one) => one.text)).size, marks.length, `${said}: each label is another one: ${marks.map((one) => one.text)}`);
  for (const { text } of marks) assert.ok(text.split(' ')[0].length <= 24 && !/\.\d*0{7}/.test(text), `${said}: the label ${text} is short`);
  // The marks tell where a value is: all others lie on the line through two of them.
  const [low, high] = [marks.reduce((a, b) => (a.y > b.y ? a : b)), marks.reduce((a, b) => (a.y < b.y ? a : b))];
  const span = valueAt(high.text) / 2 - valueAt(low.text) / 2;
  assert.ok(span > 0, `${said}: ${low.text} lies below ${high.text}`);
  const yOf = (value) => low.y + ((value / 2 - valueAt(low.text) / 2) / span) * (high.y - low.y);
  for (const mark of marks) assert.ok(Math.abs(yOf(valueAt(mark.text)) - mark.y) < 2, `${said}: ${mark.text} stands at ${mark.y}, and belongs to ${yOf(valueAt(mark.text))}`);
  return { yOf, marks, values };
}

const VALUE_TEXT = /^(n\/a|OL|nan|)$/;

// leeoniya/uPlot#775: all labels of a small range were the same.
test('hundreds of odd series have whole labels that differ, and every value is seen where its labels say', async (t) => {
  const page = await open(t, browser, url, { isOther: true });
  let drawings = 0;
  for (const [kind, make] of Object.entries(KINDS)) {
    for (let seed = 0; seed < 16; seed++) {
      const random = generator(seed * 7919 + kind.length);
      const count = [1, 2, 7, 40][seed % 4];
      const width = seed % 3 === 0 ? 390 : 900;
      const texts = make(random, count);
      const said = `${kind} ${seed}, ${width} px: ${JSON.stringify(texts.slice(0, 8))}`;
      const drawn = await page.evaluate(([texts, width]) => globalThis.draw([{ output: 'value', texts }], width), [texts, width]);
      drawings += 1;
      const values = drawn.values[0];
      // What is no number is said, and keeps its text.
      for (const [at, text] of texts.entries()) {
        assert.equal(values[at] === null, text === null || VALUE_TEXT.test(text), `${said}: ${text}`);
        assert.equal(drawn.kept[0][at], text ?? '', `${said}: the text of sample ${at}`);
      }
      if (texts.findLast((text) => text !== null) !== undefined && VALUE_TEXT.test(texts.findLast((text) => text !== null))) assert.match(drawn.texts[0].problem, /is no number$|is empty$/);
      if (values.every((value) => value === null)) continue;
      const { yOf } = judge(said, drawn, count);
      const wanted = values.flatMap((value, at) => (value === null ? [] : [[drawn.places[0][at], yOf(value)]]));
      const seen = await page.evaluate((wanted) => globalThis.seen(0, wanted), wanted);
      assert.deepEqual(seen.filter((one) => !one).length, 0, `${said}: ${seen.filter((one) => !one).length} of ${wanted.length} values are not seen, such as ${values[seen.indexOf(false)]}`);
    }
  }
  assert.ok(drawings > 300, `${drawings} drawings`);
  sound(page);
});

test('the digits of the device stay, with those that a double cannot hold', async (t) => {
  const page = await open(t, browser, url, { isOther: true });
  const texts = ['9007199254740992', '9007199254740993', '9007199254740993', '0.000', '3.30', '1E+05', '-0', '0x1F', '3.301 V', '+5', '007', '1e-400', '00.10', '.5', '5.', '123456789.123456789123456789'];
  const drawn = await page.evaluate((texts) => globalThis.draw([{ output: 'value', texts }], 900), texts);
  assert.deepEqual(drawn.kept[0], texts);
  const wide = await page.evaluate(() => globalThis.draw([{ output: 'value', texts: ['9007199254740993', '9007199254740992', '9007199254740993'] }], 900));
  assert.deepEqual([wide.texts[0].least, wide.texts[0].most], ['9007199254740992', '9007199254740993']);
  sound(page);
});

test('as many lines as are drawn have colours and dashes of their own', async (t) => {
  const page = await open(t, browser, url, { isOther: true });
  const series = Array.from({ length: 64 }, (_, at) => ({ output: `o${at}`, texts: [String(at), String(at + 1)] }));
  const { looks } = await page.evaluate((series) => globalThis.draw(series, 900), series);
  assert.equal(new Set(looks.map((one) => JSON.stringify(one))).size, 64);
  sound(page);
});

test('lines of two units have two axes, each with its own marks and its unit, which are not cut', async (t) => {
  const page = await open(t, browser, url, { isOther: true });
  for (const width of [390, 900]) {
    const texts = (base, step, unit) => Array.from({ length: 20 }, (_, at) => `${(base + at * step).toFixed(4)} ${unit}`);
    const series = [{ output: 'a', texts: texts(3.3, 0.0001, 'V'), scale: 0 }, { output: 'b', texts: texts(250000, 1000, 'mA'), scale: 1 }];
    const { written, canvas, plot } = await page.evaluate(([series, width]) => globalThis.draw(series, width), [series, width]);
    for (const one of written) assert.ok(one.left >= 0 && one.right <= canvas.width, `${one.text} is cut at ${width} px`);
    assert.ok(written.filter((one) => / V$/.test(one.text) && one.right < plot.left).length >= 3, 'volts on the left');
    assert.ok(written.filter((one) => / mA$/.test(one.text) && one.left > plot.left + plot.width).length >= 3, 'milliamperes on the right');
    for (const step of [0.05, 0.1, 0.21, 1, 13, 700, 9000]) {
      const { written } = await page.evaluate(([series, width, step]) => globalThis.draw(series, width, step), [series, width, step]);
      const times = written.filter((one) => one.top > plot.top + plot.height && /^\d+[:-]\d\d/.test(one.text));
      assert.ok(times.length >= 2 && times.every((one) => one.left >= 0 && one.right <= canvas.width), `${times.length} times in ${20 * step} s at ${width} px`);
      // A time of the next day is written as the same time of this one: the date stands below midnight.
      const days = [[]];
      for (const { text } of times.toSorted((one, other) => one.left - other.left)) {
        if (/^00:00(:00)?$/.test(text)) days.push([]);
        if (!/-/.test(text)) days.at(-1).push(text);
      }
      const all = `${20 * step} s: ${times.map((one) => one.text)}`;
      for (const day of days) assert.equal(new Set(day).size, day.length, all);
      assert.ok(times.filter((one) => /-/.test(one.text)).length >= days.length - 1, all);
    }
  }
  sound(page);
});

test('a series with more samples than pixels keeps its spikes, and a long gap', async (t) => {
  const page = await open(t, browser, url, { isOther: true });
  const texts = Array.from({ length: 60_000 }, (_, at) => (at > 30_000 && at < 40_000 ? null : at === 20_001 ? '9' : at === 50_001 ? '-9' : '1'));
  const drawn = await page.evaluate((texts) => globalThis.draw([{ output: 'value', texts }], 900), texts);
  const { yOf } = judge('spikes', drawn, texts.length);
  const place = (at) => drawn.plot.left + (drawn.plot.width * at) / (texts.length - 1);
  assert.deepEqual(await page.evaluate((wanted) => globalThis.seen(0, wanted), [[place(20_001), yOf(9)], [place(50_001), yOf(-9)], [place(35_000), yOf(1)]]), [true, true, false]);
  sound(page);
});

test('a day of ten samples a second is kept whole in bounded memory, and drawn in time', async (t) => {
  const page = await open(t, browser, url, { isOther: true });
  const session = await page.context().newCDPSession(page);
  const found = await page.evaluate(() => globalThis.day(4));
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize, backingStorageSize = 0 } = await session.send('Runtime.getHeapUsage');
  assert.deepEqual([found.rows, found.dropped], [864_010, 0]);
  const used = (usedSize + backingStorageSize) / 1e6;
  assert.ok(used < 150, `${used.toFixed(0)} MB`);
  t.diagnostic(`${used.toFixed(0)} MB; a drawing takes ${found.middle.toFixed(0)} ms, the slowest ${found.slowest.toFixed(0)} ms`);
  sound(page);
});
