// Runs an RP2040 image with its USB serial port, UART0 and the board under test.
//
//   npm ci && node emulator.mjs IMAGE [OPTIONS]   (--help lists them)
//
// IMAGE is the ELF that cargo makes, a UF2, or a raw image from flash offset 0. Each port is a TCP port of 127.0.0.1; 0 or none is
// any. When the device is enumerated, one JSON line on stdout tells the ports and the USB identity. `nc 127.0.0.1 PORT`
// then talks to the board. README.md has the commands of the control port and what is emulated.
import net from 'node:net';
import readline from 'node:readline';
import { parseArgs } from 'node:util';
import { readImage } from './image.mjs';

const MS = 1e6;
const ENUMERATION_LIMIT_MS = 30000;
/** What may wait for the device before the sender is held back, in bytes: two of Linux' cdc-acm write buffers. */
const OUTGOING = 16 * 1024;
/** How long a closing port waits for the device to take what was sent, as Linux' closing_wait does (30 s there). */
const CLOSING_WAIT_MS = 200;

const USAGE = `usage: node emulator.mjs IMAGE [OPTIONS]
  --usb-port N       TCP port of 127.0.0.1 for USB; 0: any [default: 0]
  --uart-port N      the same for UART0
  --control-port N   the same for commands
  --dtr MODE         connect: DTR follows the connection to the USB port; manual: only the control port sets it [default: connect]
  --fast             skip idle time
  --quiet            print nothing about resets and faults
  --until-eof        end at the end of standard input
  --help             print this text`;
const { values: options, positionals } = readArguments();

// For tests: the emulator ends with the process that started it.
if (options['until-eof']) process.stdin.on('end', () => process.exit(0)).resume();
const log = options.quiet ? () => {} : (text) => console.error(`emulator: ${text}`);

/** Resolves at the next enumeration; rejects when it fails. */
let enumeration = pending();
/** Settles when the port that was in use at the last reset is open again. */
let reopened = Promise.resolve();
let usbSocket = null;
/** Whether the last user of the USB port has closed it, and the device has not taken yet what was sent. */
let closing = false;
let uartSocket = null;
/** The host's wish, by the control port; the port is read when this and an open port agree. */
let reading = true;

/** The last that the cable did: pulled. A device that resets is away for a moment, too, but its cable stays. */
let unplugged = false;

// Imported here: it needs the npm package, which the help text does not.
const { Machine } = await import('./machine.mjs').catch((error) =>
  fail(error.code === 'ERR_MODULE_NOT_FOUND' ? 'its npm package is not installed: run npm ci in tests/emulator' : error.stack),
);
const machine = new Machine(image(positionals[0]), {
  fast: options.fast,
  log,
  onUartByte: (byte) => uartSocket?.write(Buffer.of(byte)),
  usb: {
    onReady(error) {
      if (error) enumeration.reject(error);
      else enumeration.resolve();
    },
    onData(bytes) {
      if (usbSocket && bytes.length > 0 && !usbSocket.write(bytes)) machine.usb.setPolling(false);
    },
    onRoom() {
      if (usbSocket?.isPaused() && machine.usb.outgoingBytes < OUTGOING / 2) usbSocket.resume();
    },
    onGone() {
      enumeration = pending();
      reopened = reopen();
      reopened.catch((error) => log(error.message));
    },
  },
});

const usbServer = net.createServer({ pauseOnConnect: true }, async (socket) => {
  socket.on('error', () => {});
  // A serial port has one user; who comes while the last one leaves waits.
  const deadline = performance.now() + 500;
  while (closing || (usbSocket && performance.now() < deadline)) await new Promise((resolve) => setTimeout(resolve, 5));
  if (usbSocket || unplugged) return socket.destroy();
  usbSocket = socket;
  socket.setNoDelay(true);
  socket.on('data', (bytes) => {
    machine.usb.send(bytes);
    if (machine.usb.outgoingBytes > OUTGOING) socket.pause();
  });
  socket.on('drain', poll);
  socket.on('close', () => close().catch((error) => log(error.message)));
  await open().catch((error) => log(error.message));
});
// Reading stops while the device does not take what was sent, and then the end of the connection is not seen either: a
// device that hangs keeps its user, as a real one does.

const uartServer = net.createServer({ pauseOnConnect: true }, async (socket) => {
  socket.on('error', () => {});
  // As above: who comes while the last one leaves waits.
  const deadline = performance.now() + 500;
  while (uartSocket && performance.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 5));
  if (uartSocket) return socket.destroy();
  uartSocket = socket;
  socket.setNoDelay(true);
  socket.on('data', (bytes) => machine.feedUart(bytes));
  socket.on('close', () => (uartSocket = null));
  socket.resume();
});

const controlServer = net.createServer((socket) => {
  socket.on('error', () => {});
  // In order: the next command begins when the one before is done.
  let last = Promise.resolve();
  readline.createInterface({ input: socket }).on('line', (line) => {
    last = last.then(() => answer(line)).then((reply) => socket.write(`${JSON.stringify(reply)}\n`));
  });
});

/** Linux fetches packets from a port that is opened before it raises DTR; a program can write after both. */
async function open() {
  await enumeration.promise;
  poll();
  if (options.dtr === 'connect') await machine.usb.setDtr(true);
  usbSocket?.resume();
}

async function close() {
  closing = true;
  const { usb } = machine;
  const deadline = machine.nanos() + CLOSING_WAIT_MS * MS;
  while (usb.outgoingBytes > 0 && machine.nanos() < deadline) await machine.sleep(MS);
  usb.discard();
  if (usb.configured && options.dtr === 'connect') await usb.setDtr(false).catch(() => {});
  usbSocket = null;
  closing = false;
  poll();
}

function poll() {
  machine.usb.setPolling(reading && usbSocket !== null && !usbSocket.writableNeedDrain);
}

/** After the device has enumerated anew, a port that is in use is opened again, as a program that notices would. */
async function reopen() {
  const enumerated = enumeration.promise;
  usbSocket?.pause();
  await enumerated;
  if (usbSocket) await open();
}

const commands = {
  async dtr({ value }) {
    await machine.usb.setDtr(Boolean(value));
  },
  async 'bus-reset'() {
    unplugged = false;
    enumeration = pending();
    machine.usb.reset();
    await reopen();
  },
  async suspend() {
    machine.usb.suspend();
  },
  async resume() {
    machine.usb.resume();
  },
  async unplug() {
    unplugged = true;
    machine.usb.unplug();
    // As an operating system does: who has the port open gets what has arrived, then its end.
    usbSocket?.destroySoon();
  },
  plug: () => commands['bus-reset'](),
  async reading({ value }) {
    reading = Boolean(value);
    poll();
  },
  async reset({ kind = 'power' }) {
    if (!['power', 'watchdog'].includes(kind)) throw new Error('kind is power or watchdog');
    await machine.reset(kind);
    await reopened;
  },
  async sleep({ ms }) {
    await machine.sleep(number(ms, 'ms') * MS);
  },
  async gpio({ pin, value }) {
    const gpio = machine.mcu.gpio[number(pin, 'pin')];
    if (!gpio) throw new Error('pin is from 0 to 29');
    if (value !== undefined) gpio.setInputValue(Boolean(value));
    machine.kick();
    return { output: gpio.outputEnable, high: gpio.outputEnable ? gpio.outputValue : gpio.inputValue };
  },
  async adc({ channel, millivolts }) {
    machine.dut.setChannel(number(channel, 'channel'), millivolts === null ? null : number(millivolts, 'millivolts'));
  },
  async dut() {
    return machine.dut.state();
  },
  async i2c({ hold = null }) {
    machine.dut.instruments.setHold(hold);
    machine.kick();
  },
  async clock({ hertz }) {
    machine.dut.instruments.setClockHertz(number(hertz, 'hertz'));
  },
  async packets({ last = 100, clear = false }) {
    const { usb } = machine;
    const packets = usb.packets.slice(-number(last, 'last'));
    const dropped = usb.packetsDropped + usb.packets.length - packets.length;
    if (clear) {
      usb.packets.length = 0;
      usb.packetsDropped = 0;
    }
    const show = ({ nanos, bytes, repeated }) => ({ nanos, length: bytes.length, text: bytes.toString('latin1'), repeated });
    return { packets: packets.map(show), dropped };
  },
  async marks({ clear = true }) {
    const { marks } = machine;
    if (clear) machine.marks = [];
    return { marks };
  },
  async stats() {
    const { usb, image } = machine;
    return {
      nanos: machine.nanos(),
      cycles: machine.cycles(),
      instructions: machine.instructions,
      turnaround_cycles: usb.turnaround.in - usb.turnaround.out,
      stack: machine.stack(),
      flash: image.sizes?.flash ?? null,
      static_ram: image.sizes?.staticRam ?? null,
      resets: machine.resets,
      faults: machine.faults,
      dtr: usb.dtr,
      usb: usb.counts,
      uart_overruns: machine.uart.overruns,
      console_overruns: machine.console.overruns,
    };
  },
};

async function answer(line) {
  let request = {};
  try {
    request = JSON.parse(line);
    if (!Object.hasOwn(commands, request?.cmd)) throw new Error(`cmd is one of ${Object.keys(commands).join(', ')}`);
    return { id: request.id, ok: true, ...(await commands[request.cmd](request)) };
  } catch (error) {
    return { id: request?.id, ok: false, error: error.message };
  }
}

function number(value, name) {
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new Error(`${name} must be a number`);
  return value;
}

function pending() {
  let settle;
  const promise = new Promise((resolve, reject) => (settle = { resolve, reject }));
  promise.catch(() => {});
  return { promise, ...settle };
}

function listen(server, port) {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host: '127.0.0.1', port: Number(port) }, () => resolve(server.address().port));
  });
}

const [usb_port, uart_port, control_port] = await Promise.all([
  listen(usbServer, options['usb-port']),
  listen(uartServer, options['uart-port']),
  listen(controlServer, options['control-port']),
]).catch((error) => fail(error.message));
machine.start();
const limit = setTimeout(
  () => fail(`not enumerated, pc 0x${(machine.mcu.core.PC >>> 0).toString(16)}`),
  ENUMERATION_LIMIT_MS,
);
await enumeration.promise.catch((error) => fail(error.message));
clearTimeout(limit);
console.log(JSON.stringify({ usb_port, uart_port, control_port, usb: machine.usb.identity }));

function readArguments() {
  let given;
  try {
    given = parseArgs({
      allowPositionals: true,
      options: {
        'usb-port': { type: 'string', default: '0' },
        'uart-port': { type: 'string', default: '0' },
        'control-port': { type: 'string', default: '0' },
        dtr: { type: 'string', default: 'connect' },
        fast: { type: 'boolean', default: false },
        quiet: { type: 'boolean', default: false },
        'until-eof': { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    });
    if (given.values.help) {
      console.log(USAGE);
      process.exit(0);
    }
    if (given.positionals.length !== 1) throw new Error('give one image');
    if (!['connect', 'manual'].includes(given.values.dtr)) throw new Error('--dtr is connect or manual');
    for (const name of ['usb-port', 'uart-port', 'control-port']) {
      const port = Number(given.values[name]);
      if (!Number.isInteger(port) || port < 0 || port > 65535) throw new Error(`--${name} is a number from 0 to 65535`);
    }
  } catch (error) {
    console.error(`emulator: ${error.message}\n${USAGE}`);
    process.exit(2);
  }
  return given;
}

function image(path) {
  try {
    return readImage(path);
  } catch (error) {
    return fail(error.message);
  }
}

function fail(reason) {
  console.error(`emulator: ${reason}`);
  process.exit(1);
}
