// An emulated RP2040 that runs an image: loading, resets, faults, the passage of time, and what can be counted.
import { LogLevel, Simulator } from 'rp2040js';
import { BoardUnderTest, PINS } from './dut.mjs';
import { FLASH, RAM } from './image.mjs';
import { UartWire } from './uart.mjs';
import { UsbHost } from './usb.mjs';

const VECTORS = 0x100; // after boot2
const CYCLE = 8; // nanoseconds, at 125 MHz
const HARD_FAULT = 3;
const WATCHDOG = 0x40058;
const PAINT = 0xa5a55a5a;
const MS = 1e6;

/** How far a busy processor may fall behind before that time is left behind for good; an idle one catches up. */
const MAX_LAG = 20 * MS;
const MAX_IDLE_LAG = 500 * MS;
const SLICE = 2 * MS;

export class Machine {
  /** `usb` and `uart` get what the board sends; see UsbHost. `log` gets a line about each reset and fault. */
  constructor(image, { fast = false, usb, onUartByte, log = () => {} }) {
    Object.assign(this, { image, fast, usbEvents: usb, onUartByte, log });
    this.base = 0;
    this.cyclesBefore = 0;
    this.instructions = 0;
    this.resets = 0;
    this.faults = 0;
    this.marks = [];
    this.waiting = { reboot: [], time: [] };
    this.dut = new BoardUnderTest(() => this.nanos());
    this.#boot(null);
  }

  /** Emulated time since the first start, in nanoseconds. */
  nanos() {
    return this.base + (this.clock?.nanos ?? 0);
  }

  cycles() {
    return this.cyclesBefore + this.mcu.core.cycles;
  }

  start() {
    this.running = true;
    this.wallBase = wall() - this.nanos();
    this.kick();
  }

  stop() {
    this.running = false;
    clearTimeout(this.timer);
    clearImmediate(this.immediate);
  }

  /**
   * Without `start`: lets `nanos` of emulated time pass, as fast as it can and the same in every run. Pauses between
   * steps, for the host's promises.
   */
  async advance(nanos, until = () => false) {
    const STEP = MS / 20;
    for (const end = this.nanos() + nanos; this.nanos() < end && !until(); ) {
      this.#runUntil(Math.min(end, this.nanos() + STEP), Infinity);
      await new Promise((resolve) => setImmediate(resolve));
    }
    return until();
  }

  /** Something came from outside: the emulation need not sleep until its next alarm. */
  kick() {
    if (!this.running || this.immediate || this.inside) return;
    clearTimeout(this.timer);
    this.immediate = setImmediate(() => {
      this.immediate = null;
      this.#run();
    });
  }

  /** Starts the image anew. A power-on loses the RAM; a watchdog reset keeps it and the watchdog's scratch registers. */
  reset(kind) {
    this.rebooting = kind;
    this.kick();
    return new Promise((resolve) => this.waiting.reboot.push(resolve));
  }

  feedUart(bytes) {
    this.uart.send(bytes);
    this.kick();
  }

  /** After `nanos` of emulated time, resets in between or not. */
  sleep(nanos) {
    return new Promise((resolve) => {
      this.waiting.time.push({ at: this.nanos() + nanos, resolve });
      this.#wakeSleepers();
      this.kick();
    });
  }

  /** Deepest use of the stack since the last reset, in bytes, and what there is; null when the image is no ELF. */
  stack() {
    if (this.stackBottom === null) return null;
    let at = this.stackBottom;
    while (at < this.stackTop && this.mcu.sramView.getUint32(at - RAM.start, true) === PAINT) at += 4;
    return { peak: this.stackTop - at, size: this.stackTop - this.stackBottom };
  }

  #boot(before) {
    this.base = this.nanos();
    const { clock, rp2040: mcu } = new Simulator();
    Object.assign(this, { clock, mcu, fault: false, locked: false, rebooting: null });
    mcu.logger = this.#logger();
    mcu.onBreak = (code) => this.#break(code);
    for (const { address, bytes } of this.image.segments) {
      const [region, memory] = address >= RAM.start ? [RAM, mcu.sram] : [FLASH, mcu.flash];
      memory.set(bytes, address - region.start);
    }
    const watchdog = mcu.peripherals[WATCHDOG];
    watchdog.onWatchdogTrigger = () => {
      watchdog.timer.enable = false; // at zero it would trigger again and again
      this.rebooting = 'watchdog';
    };
    if (before?.kind === 'watchdog') {
      mcu.sram.set(before.mcu.sram);
      const last = before.mcu.peripherals[WATCHDOG];
      watchdog.scratchData.set(last.scratchData);
      watchdog.reason = last.reason;
    } else {
      mcu.sram.fill(0x5a); // RAM holds anything after power-on
    }
    this.cyclesBefore += before?.mcu.core.cycles ?? 0;
    mcu.core.cycles = 0;
    mcu.core.VTOR = FLASH.start + VECTORS;
    mcu.core.SP = mcu.flashView.getUint32(VECTORS, true);
    mcu.core.PC = mcu.flashView.getUint32(VECTORS + 4, true) & ~1;
    this.#paintStack();

    this.uart = new UartWire(mcu, 0, this.onUartByte);
    this.usb = new UsbHost(mcu, { ...this.usbEvents, onWork: () => this.kick(), now: () => this.nanos() });
    this.console = new UartWire(mcu, PINS.console, () => {});
    this.dut.attach(mcu, this.console);
    this.sleepAlarm = clock.createAlarm(() => this.#wakeSleepers());
    this.#wakeSleepers();
  }

  #paintStack() {
    const { sizes, symbols } = this.image;
    this.stackTop = this.mcu.core.SP;
    this.stackBottom = sizes ? (Math.max(symbols.get('__sheap') ?? 0, sizes.ramTop) + 3) & ~3 : null;
    for (let at = this.stackBottom ?? this.stackTop; at < this.stackTop; at += 4) {
      this.mcu.sramView.setUint32(at - RAM.start, PAINT, true);
    }
  }

  /** BKPT n is a mark that a benchmark image sets; UDF is a fault, as on the chip. */
  #break(code) {
    const opcode = this.mcu.readUint16((this.mcu.core.PC - 2) >>> 0);
    if (opcode >> 8 === 0xbe) this.marks.push({ code, cycles: this.cycles(), nanos: this.nanos() });
    else this.fault = true;
  }

  #logger() {
    const warn = (component, text) => {
      if (/invalid memory|undefined address/.test(text)) this.fault = true;
      else if (/not implemented yet!|Opcode/.test(text)) this.fault = true;
    };
    return { debug() {}, info() {}, warn, error: warn, minLevel: LogLevel.Warn };
  }

  #enterFault() {
    this.fault = false;
    this.faults += 1;
    const { core } = this.mcu;
    this.log(`fault at 0x${((core.PC - 2) >>> 0).toString(16)}, link register 0x${(core.LR >>> 0).toString(16)}`);
    if (core.IPSR === HARD_FAULT) this.locked = true; // ARMv6-M §B1.5.15: only a reset helps
    else core.exceptionEntry(HARD_FAULT);
  }

  #run() {
    if (!this.running) return;
    const started = wall();
    let target = this.nanos() + 10 * MS;
    if (!this.fast) {
      const now = started - this.wallBase;
      const lag = now - this.nanos() - (this.#sleeping() ? MAX_IDLE_LAG : MAX_LAG);
      if (lag > 0) this.wallBase += lag;
      target = started - this.wallBase;
    }
    this.inside = true;
    this.#runUntil(target, started + SLICE);
    this.inside = false;
    const next = this.clock.nextAlarm;
    const idle = this.#sleeping() && (next ? next.nanos - this.clock.nanos : Infinity);
    if (idle === false || (this.fast && next) || idle < 2 * MS) {
      this.immediate ??= setImmediate(() => {
        this.immediate = null;
        this.#run();
      });
    } else {
      this.timer = setTimeout(() => this.#run(), Math.min(idle / MS - 1, 50));
    }
  }

  #runUntil(target, deadline) {
    while (this.nanos() < target && wall() < deadline) {
      for (let steps = 0; steps < 2000; steps++) {
        if (this.rebooting) this.#reboot();
        if (this.#sleeping()) {
          const left = target - this.nanos();
          const next = this.clock.nextAlarm;
          const toNext = next ? next.nanos - this.clock.nanos : Infinity;
          this.clock.tick(Math.max(0, Math.min(left, toNext)));
          if (left <= toNext) return;
        } else {
          const cycles = this.mcu.core.executeInstruction();
          this.instructions += 1;
          if (this.fault) this.#enterFault();
          this.clock.tick(cycles * CYCLE);
        }
      }
    }
  }

  #sleeping() {
    return this.mcu.core.waiting || this.locked;
  }

  #reboot() {
    const kind = this.rebooting;
    this.log(`${kind} reset`);
    this.resets += 1;
    const before = { kind, mcu: this.mcu };
    this.usbEvents.onGone();
    this.usb.gone();
    this.#boot(before);
    for (const resolve of this.waiting.reboot.splice(0)) resolve();
  }

  #wakeSleepers() {
    const now = this.nanos();
    const due = this.waiting.time.filter(({ at }) => at <= now);
    this.waiting.time = this.waiting.time.filter(({ at }) => at > now);
    for (const { resolve } of due) resolve();
    if (this.waiting.time.length > 0) this.sleepAlarm.schedule(Math.min(...this.waiting.time.map(({ at }) => at)) - now);
  }
}

function wall() {
  return performance.now() * MS;
}
