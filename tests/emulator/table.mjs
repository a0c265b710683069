// The figures of firmware-example/README.md, from the images: the same in every run.
//
//   node table.mjs IMAGES            prints the table as Markdown
//   node table.mjs IMAGES README     compares it with the one between the marks in README; fails when a figure has grown
//                                    by more than 2 %, or fallen by more than 2 % without the table being told
//   node table.mjs IMAGES README --update
//
// IMAGES is the directory of `.ci/numbers.sh`: echo-bare, echo, engine, engine-{amplifier,namel3ss,waza,mcp}, cycles, cycles-all, rig.
import fs from 'node:fs';
import path from 'node:path';
import { readImage } from './image.mjs';
import { Machine } from './machine.mjs';
import { Bench } from './measure.mjs';

const TOLERANCE = 0.02;
const MARKS = ['<!-- figures -->', '<!-- /figures -->'];

const [directory, readme, update] = process.argv.slice(2);
if (!directory) {
  console.error('usage: node table.mjs IMAGES [README [--update]]');
  process.exit(2);
}
const image = (name) => path.join(directory, name);
const fixture = fs.readFileSync(new URL('../bench/execute.jsonl', import.meta.url), 'utf8').trimEnd();

const rows = await measure();
const table = ['| figure | |', '|---|---:|', ...rows.map(([name, value, unit]) => `| ${name} | ${group(value)}${unit && ` ${unit}`} |`)].join('\n');
if (!readme) {
  console.log(table);
} else {
  const text = fs.readFileSync(readme, 'utf8');
  const [start, end] = [text.indexOf(MARKS[0]) + MARKS[0].length, text.indexOf(MARKS[1])];
  if (end < start) throw new Error(`${readme} has no ${MARKS.join(' ... ')}`);
  if (update) {
    fs.writeFileSync(readme, `${text.slice(0, start)}\n${table}\n${text.slice(end)}`);
  } else {
    compare(text.slice(start, end));
  }
}

async function measure() {
  const size = (name) => readImage(image(name)).sizes;
  const [bare, echo, engine, rig] = ['echo-bare', 'echo', 'engine', 'rig'].map(size);
  const stacks = await stackPeaks('engine', fixture, (inner) => fixture.replace('"params":{', `"params":{"x":${inner},`));
  const rigLine = (x) =>
    `{"jsonrpc":"2.0","id":1,"method":"execute","params":{${x}"operation":"gpio-read","args":{"pin":"GP15"},"context":{}}}`;
  const rigStacks = await stackPeaks('rig', rigLine(''), (inner) => rigLine(`"x":${inner},`));
  const echoBench = await Bench.open(image('echo'));
  const { stack_peak: echoStack } = await echoBench.exchange(fixture);
  return [
    ['flash: a USB echo with embassy alone', bare.flash, 'B'],
    ['flash: a USB echo over `usb_cdc`', echo.flash, 'B'],
    ['flash: the engine and a small extension over that (gevals, JSON-RPC)', engine.flash - echo.flash, 'B'],
    ['flash: Amplifier besides', size('engine-amplifier').flash - engine.flash, 'B'],
    ['flash: namel3ss besides', size('engine-namel3ss').flash - engine.flash, 'B'],
    ['flash: waza besides', size('engine-waza').flash - engine.flash, 'B'],
    ['flash: MCP besides', size('engine-mcp').flash - engine.flash, 'B'],
    ['flash: the whole rig', rig.flash, 'B'],
    ['static RAM: a USB echo over `usb_cdc`', echo.staticRam, 'B'],
    ['static RAM: the engine over that, its buffers included', engine.staticRam - echo.staticRam, 'B'],
    ['static RAM: the whole rig, 29 KB of buffers included', rig.staticRam, 'B'],
    ['peak stack: the echo', echoStack, 'B'],
    ['peak stack: the engine, `execute`', stacks.flat, 'B'],
    ['peak stack: the engine, `execute` nested 128 deep', stacks.deep, 'B'],
    ['peak stack: the whole rig, `execute`', rigStacks.flat, 'B'],
    ['peak stack: the whole rig, `execute` nested 128 deep', rigStacks.deep, 'B'],
    ['cycles: the fixture line, from its commit to its reply', await cycles('cycles'), ''],
    ['cycles: the same, with all protocols in the image', await cycles('cycles-all'), ''],
  ];
}

async function stackPeaks(name, line, nested) {
  const bench = await Bench.open(image(name));
  const { stack_peak: flat } = await bench.exchange(line);
  const depth = 126; // the line's own object and its params are the first two
  const { stack_peak: deep, reply } = await bench.exchange(nested('['.repeat(depth) + ']'.repeat(depth)));
  if (!reply.includes('"success":true')) throw new Error(`${name}: ${reply}`);
  return { flat, deep };
}

async function cycles(name) {
  const machine = new Machine(readImage(image(name)), {
    onUartByte() {},
    usb: { onReady() {}, onData() {}, onRoom() {}, onGone() {} },
  });
  await machine.advance(5e6, () => machine.marks.length >= 6);
  const [from, to] = machine.marks.slice(-2);
  if (machine.marks.map(({ code }) => code).join() !== '1,2,1,2,1,2') throw new Error('unexpected marks');
  return to.cycles - from.cycles;
}

function compare(before) {
  const known = new Map([...before.matchAll(/^\| (.+?) \| ([\d,]+) ?\w* \|$/gm)].map(([, name, value]) => [name, Number(value.replaceAll(',', ''))]));
  let failed = 0;
  for (const [name, value, unit] of rows) {
    const was = known.get(name);
    const ratio = was === undefined ? NaN : value / was;
    const isSame = Math.abs(ratio - 1) <= TOLERANCE;
    failed += isSame ? 0 : 1;
    console.log(`${isSame ? '  ' : '! '}${name}: ${group(value)} ${unit}, ${was === undefined ? 'not in the table' : `was ${group(was)}`}`);
  }
  if (failed) {
    console.error(`${failed} figures are off by more than 2 %: run .ci/numbers.sh --update, and say why in the commit`);
    process.exit(1);
  }
}

function group(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ',');
}
