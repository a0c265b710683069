// The figures of firmware-example/README.md, from the images: the same in every run. .ci/figures.py compares and writes them.
//
//   node table.mjs IMAGES            prints the table as Markdown
//
// IMAGES is the directory of `.ci/numbers.sh`: echo-bare, echo, engine, engine-{amplifier,namel3ss,waza,mcp}, cycles, cycles-all, rig,
// rig-{console,statistics,i2c,counter,pwm,spi}.
import fs from 'node:fs';
import path from 'node:path';
import { cycles } from '../bench/cycles.mjs';
import { readImage } from './image.mjs';
import { Bench } from './measure.mjs';

const [directory] = process.argv.slice(2);
if (!directory) {
  console.error('usage: node table.mjs IMAGES');
  process.exit(2);
}
const image = (name) => path.join(directory, name);
const fixture = fs.readFileSync(new URL('../bench/execute.jsonl', import.meta.url), 'utf8').trimEnd();

const rows = await measure();
console.log('| figure | | goal |\n|---|---:|---:|');
for (const [name, value, unit, goal = ''] of rows) console.log(`| ${name} | ${group(value)}${unit && ` ${unit}`} | ${goal} |`);

async function measure() {
  const size = (name) => readImage(image(name)).sizes;
  const [bare, echo, engine, rig, withConsole] = ['echo-bare', 'echo', 'engine', 'rig', 'rig-console'].map(size);
  const stacks = await stackPeaks('engine', fixture, (inner) => fixture.replace('"params":{', `"params":{"x":${inner},`));
  const rigLine = (x) =>
    `{"jsonrpc":"2.0","id":1,"method":"execute","params":{${x}"operation":"gpio-read","args":{"pin":"GP15"},"context":{}}}`;
  const rigStacks = await stackPeaks('rig', rigLine(''), (inner) => rigLine(`"x":${inner},`));
  const [alone, all] = [await cycles(image('cycles')), await cycles(image('cycles-all'))];
  const echoBench = await Bench.open(image('echo'));
  const { stack_peak: echoStack } = await echoBench.exchange(fixture);
  return [
    ['flash: a USB echo with embassy alone', bare.flash, 'B'],
    ['flash: a USB echo over `usb_cdc`', echo.flash, 'B'],
    ['flash: the engine and a small extension over that (gevals, JSON-RPC)', engine.flash - echo.flash, 'B', '34,000 B'],
    ['flash: Amplifier besides', size('engine-amplifier').flash - engine.flash, 'B', '4,000 B'],
    ['flash: namel3ss besides', size('engine-namel3ss').flash - engine.flash, 'B', '4,500 B'],
    ['flash: waza besides', size('engine-waza').flash - engine.flash, 'B', '7,000 B'],
    ['flash: MCP besides', size('engine-mcp').flash - engine.flash, 'B', '6,500 B'],
    ['flash: the whole rig', rig.flash, 'B', '122,000 B'],
    ['flash: the console of the board under test besides', withConsole.flash - rig.flash, 'B', '20,000 B'],
    ['flash: `measure-over-time` besides', size('rig-statistics').flash - rig.flash, 'B'],
    ['flash: `i2c-scan` and `i2c-transfer` besides', size('rig-i2c').flash - rig.flash, 'B'],
    ['flash: `count-pulses` besides', size('rig-counter').flash - rig.flash, 'B'],
    ['flash: `pwm` besides', size('rig-pwm').flash - rig.flash, 'B'],
    ['flash: `spi-transfer` besides', size('rig-spi').flash - rig.flash, 'B'],
    ['static RAM: a USB echo over `usb_cdc`', echo.staticRam, 'B'],
    ['static RAM: the engine over that, its buffers included', engine.staticRam - echo.staticRam, 'B'],
    ['static RAM: the whole rig, 21 KB of buffers included', rig.staticRam, 'B'],
    ['static RAM: the console besides, with its ring of 8 KB and larger replies', withConsole.staticRam - rig.staticRam, 'B'],
    ['peak stack: the echo', echoStack, 'B'],
    ['peak stack: the engine, `execute`', stacks.flat, 'B', '1,400 B'],
    ['peak stack: the engine, `execute` nested 128 deep', stacks.deep, 'B'],
    ['peak stack: the whole rig, `execute`', rigStacks.flat, 'B', '2,000 B'],
    ['peak stack: the whole rig, `execute` nested 128 deep', rigStacks.deep, 'B'],
    ['cycles: the line, committed at once, to its reply; gevals alone', alone.line, '', '14,000'],
    ['cycles: the line, committed at once, to its reply; all protocols', all.line, ''],
    ['cycles: the last of its packets of 64 bytes to its reply; gevals alone', alone.last_packet, '', '10,000'],
    ['cycles: the last of its packets of 64 bytes to its reply; all protocols', all.last_packet, ''],
    ['cycles: over USB, the last packet received to the first of the reply ready; gevals alone', stacks.turnaround, ''],
  ];
}

async function stackPeaks(name, line, nested) {
  const bench = await Bench.open(image(name));
  const { stack_peak: flat, turnaround_cycles: turnaround } = await bench.exchange(line);
  const depth = 126; // the line's own object and its params are the first two
  const { stack_peak: deep, reply } = await bench.exchange(nested('['.repeat(depth) + ']'.repeat(depth)));
  if (!reply.includes('"success":true')) throw new Error(`${name}: ${reply}`);
  return { flat, deep, turnaround };
}

function group(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ',');
}
