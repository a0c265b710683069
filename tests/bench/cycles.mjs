// Cycles of the RP2040 from the commit of a line to its reply, in the bench image `cycles`: node cycles.mjs IMAGE
import { readImage } from '../emulator/image.mjs';
import { Machine } from '../emulator/machine.mjs';

const machine = new Machine(readImage(process.argv[2]), {
  onUartByte() {},
  usb: { onReady() {}, onData() {}, onRoom() {}, onGone() {} },
});
await machine.advance(5e6, () => machine.marks.length >= 6);
const codes = machine.marks.map(({ code }) => code).join();
if (codes !== '1,2,1,2,1,2') throw new Error(`unexpected marks: ${codes}`);
const cycles = [0, 2, 4].map((at) => machine.marks[at + 1].cycles - machine.marks[at].cycles);
const { peak } = machine.stack();
console.log(JSON.stringify({ cycles: cycles.at(-1), first: cycles[0], stack_with_buffers: peak, ...machine.image.sizes }));
