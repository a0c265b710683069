// Measures an image the same way in every run: nothing here depends on the computer's clock.
//
//   node measure.mjs IMAGE LINE... -> one JSON line; each LINE is sent over USB and its last reply line awaited.
//
// cycles: what the processor spends on a line from idle to idle, interrupts of the USB included (flash wait states are not
// emulated).  turnaround_cycles: from the line's last packet in to the reply's first packet ready.  stack_peak: bytes.
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { readImage } from './image.mjs';
import { Machine } from './machine.mjs';

const MS = 1e6;

/** A board without a clock on the wall, its port open; `exchange` gives what a line costs and what came back. */
export class Bench {
  static async open(file) {
    const image = readImage(file);
    const bench = new Bench();
    let ready = false;
    bench.received = '';
    bench.machine = new Machine(image, {
      onUartByte() {},
      usb: {
        onReady: (error) => (ready = error ?? true),
        onData: (bytes) => (bench.received += bytes.toString('latin1')),
        onRoom() {},
        onGone() {},
      },
    });
    if (!(await bench.machine.advance(2000 * MS, () => ready)) || ready !== true) throw new Error(`${file}: not enumerated`);
    bench.machine.usb.setPolling(true);
    await Promise.all([bench.machine.usb.setDtr(true), bench.machine.advance(10 * MS)]);
    return bench;
  }

  /** Sends a line; `done(text)` tells from what was received whether the answer is complete. */
  async exchange(line, done = (text) => text.endsWith('\n')) {
    const { machine } = this;
    this.received = '';
    machine.marks = [];
    const [cycles, instructions] = [machine.cycles(), machine.instructions];
    machine.usb.send(Buffer.from(`${line}\n`));
    if (!(await machine.advance(10000 * MS, () => done(this.received)))) throw new Error(`no answer to ${line}`);
    await machine.advance(2 * MS);
    return {
      reply: this.received,
      cycles: machine.cycles() - cycles,
      instructions: machine.instructions - instructions,
      turnaround_cycles: machine.usb.turnaround.in - machine.usb.turnaround.out,
      stack_peak: machine.stack()?.peak ?? null,
      marks: machine.marks,
    };
  }
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [file, ...lines] = process.argv.slice(2);
  if (!file || lines.length === 0) {
    console.error('usage: node measure.mjs IMAGE LINE...');
    process.exit(2);
  }
  const bench = await Bench.open(file);
  const { flash, staticRam: static_ram } = bench.machine.image.sizes ?? {};
  for (const line of lines) {
    const { cycles, instructions, turnaround_cycles, stack_peak } = await bench.exchange(line);
    const figures = { line_bytes: line.length + 1, cycles, instructions, turnaround_cycles, stack_peak };
    console.log(JSON.stringify({ image: path.basename(file), flash, static_ram, ...figures }));
  }
}
