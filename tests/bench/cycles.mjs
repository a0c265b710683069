// Cycles of the RP2040 from a line to its reply, in the bench image `cycles`: node cycles.mjs IMAGE
import { pathToFileURL } from 'node:url';
import { readImage } from '../emulator/image.mjs';
import { Machine } from '../emulator/machine.mjs';

const [WHOLE_LINE, REPLY, WRONG, LAST_PACKET] = [1, 2, 3, 4];

/** Cycles to the reply, once the image is warm: from the commit of the whole line, and from that of its last packet of 64 bytes. */
export async function cycles(file) {
  const machine = new Machine(readImage(file), {
    onUartByte() {},
    usb: { onReady() {}, onData() {}, onRoom() {}, onGone() {} },
  });
  const expected = [WHOLE_LINE, WHOLE_LINE, WHOLE_LINE, LAST_PACKET, LAST_PACKET, LAST_PACKET].flatMap((start) => [start, REPLY]);
  const codes = () => machine.marks.map(({ code }) => code);
  await machine.advance(1e7, () => machine.marks.length >= expected.length || codes().includes(WRONG));
  if (codes().join() !== expected.join()) throw new Error(`${file}: unexpected marks: ${codes().join()}`);
  const to = (at) => machine.marks[at + 1].cycles - machine.marks[at].cycles;
  return { line: to(4), first: to(0), last_packet: to(10), stack_with_buffers: machine.stack()?.peak ?? null, ...machine.image.sizes };
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) console.log(JSON.stringify(await cycles(process.argv[2])));
