// The console of the board under test, on the rig's UART1: firmware-example/src/dut.rs has the same script and texts, and says what
// the commands do. A test of that crate holds the two to it.
const BANNER = '\r\ndut boot loader 1.0\r\nimage ok, starting\r\n';
const LOADER = '\r\ndut boot loader 1.0\r\nboot pin held, waiting for an image\r\n';
const READY = 'rails ok\r\ndut 1.2.0 ready\r\n';
const PROMPT = '> ';
const VERSION = 'dut 1.2.0';
const HELP = 'help ver echo flood garbage baud break hang reset';
const [MOST, COMMAND, OUT] = [10000000, 64, 256];
const [SPEED, MIN_SPEED, MAX_SPEED] = [115200, 300, 3000000];
const BITS = 10; // the board has 8N1

const [ETX, BS, LF, CR, DEL] = [3, 8, 10, 13, 127];
const FRAMING_ERROR = 1 << 8;
const PARITY_ERROR = 1 << 9;
const BREAK_ERROR = 1 << 10;

/** The byte at a place of a flood: numbered lines of 64 bytes. */
export function floodByte(place) {
  const column = place % 64;
  if (column < 8) return String(Math.floor(place / 64)).padStart(8, '0').slice(-8).charCodeAt(column);
  if (column === 62) return CR;
  if (column === 63) return LF;
  return 0x61 + ((column - 8) % 26);
}

export class DutConsole {
  /** `onReset` is called when the command `reset` runs. */
  constructor(onReset) {
    this.onReset = onReset;
    this.down();
  }

  /** Wires the console to a UART of the rig, also of one that was just reset. */
  attach(wire, clock) {
    this.wire = wire;
    wire.onByte = (byte) => this.#mismatch() || this.#receive(byte);
    wire.onBreak = () => this.#broken();
    this.alarm = clock.createAlarm(() => this.#arrived());
    this.coming = null;
    this.#goOn();
  }

  start(bootPressed) {
    this.down();
    this.#say(bootPressed ? LOADER : BANNER);
    this.#goOn();
  }

  up() {
    this.isUp = true;
    this.#say(READY);
    this.then = 'prompt';
    this.#goOn();
  }

  /** Without power, or in reset. */
  down() {
    this.speed = SPEED;
    this.isUp = false;
    this.isHung = false;
    this.out = [];
    this.flood = [0, 0];
    this.garbage = [1, 0];
    this.then = null;
    this.command = '';
    this.wasReturn = false;
    this.coming = null;
    this.alarm?.cancel();
  }

  #goOn() {
    if (this.coming !== null || !this.wire) return;
    this.coming = this.#nextByte();
    if (this.coming !== null) this.alarm.schedule((BITS * 1e9) / this.speed);
  }

  #arrived() {
    const byte = this.coming;
    this.coming = null;
    if (byte === null) return;
    const mismatch = this.#mismatch();
    // A UART of another speed takes some byte for it.
    this.wire.arrive(mismatch ? (~byte & 0xff) | mismatch : byte);
    this.#goOn();
  }

  /** How a byte is damaged by what the two ends differ in; 0 if they agree. */
  #mismatch() {
    const { speed, dataBits, parity } = this.wire.line();
    if (Math.abs(speed - this.speed) > this.speed / 32) return FRAMING_ERROR;
    return dataBits === 8 && !parity ? 0 : PARITY_ERROR;
  }

  #nextByte() {
    if (this.out.length > 0) return this.out.shift();
    if (this.flood[0] < this.flood[1]) return floodByte(this.flood[0]++);
    if (this.garbage[1] > 0) {
      this.garbage[1] -= 1;
      this.garbage[0] = (Math.imul(this.garbage[0], 1664525) + 1013904223) >>> 0;
      return this.garbage[0] >>> 24;
    }
    const then = this.then;
    this.then = null;
    if (then === null) return null;
    if (typeof then === 'number') {
      this.speed = then;
      return null;
    }
    if (then === 'break') this.wire.arrive(BREAK_ERROR);
    this.#say(PROMPT);
    return this.out.shift();
  }

  #receive(byte) {
    if (!this.isUp || this.isHung) return;
    const wasReturn = this.wasReturn;
    this.wasReturn = byte === CR;
    if (byte === ETX) {
      this.flood = [0, 0];
      this.garbage[1] = 0;
      this.command = '';
      this.#say('\r\n');
      this.then = 'prompt';
    } else if (this.flood[0] < this.flood[1] || this.garbage[1] > 0 || (byte === LF && wasReturn)) {
      return;
    } else if (byte === CR || byte === LF) {
      this.#say('\r\n');
      const command = this.command;
      this.command = '';
      this.then = 'prompt';
      this.#run(command);
    } else if (byte === BS || byte === DEL) {
      if (this.command.length > 0) this.#say('\b \b');
      this.command = this.command.slice(0, -1);
    } else if (this.command.length < COMMAND) {
      const char = String.fromCharCode(byte);
      this.command += char;
      this.#say(char);
    }
    this.#goOn();
  }

  #run(command) {
    const space = command.indexOf(' ');
    const [name, argument] = space < 0 ? [command, ''] : [command.slice(0, space), command.slice(space + 1)];
    const number = /^\+?\d+$/.test(argument) ? Number(argument) : NaN;
    if (name === '') return;
    if (name === 'help') this.#say(`${HELP}\r\n`);
    else if (name === 'ver') this.#say(`${VERSION}\r\n`);
    else if (name === 'echo') this.#say(`${argument}\r\n`);
    else if (name === 'flood' && number <= MOST) this.flood = [0, number];
    else if (name === 'garbage' && number <= MOST) this.garbage = [1, number];
    else if (name === 'baud' && number >= MIN_SPEED && number <= MAX_SPEED) {
      this.then = number;
      this.#say(`baud ${number}\r\n${PROMPT}`);
    } else if (['flood', 'garbage', 'baud'].includes(name)) this.#say(`error: ${name} ${argument}\r\n`);
    else if (name === 'break') this.then = 'break';
    else if (name === 'hang') {
      this.isHung = true;
      this.then = null;
    } else if (name === 'reset') {
      this.then = null;
      this.onReset();
    } else this.#say(`unknown command: ${name}\r\n`);
  }

  #broken() {
    if (!this.isUp || this.isHung) return;
    this.#say('break\r\n');
    this.then = 'prompt';
    this.#goOn();
  }

  /** What does not fit is lost, as a board's own buffer loses it. Each character is a byte. */
  #say(text) {
    for (let at = 0; at < text.length && this.out.length < OUT; at++) this.out.push(text.charCodeAt(at));
  }
}
