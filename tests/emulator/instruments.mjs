// What the board under test has on the rig's buses, its counter and its PWM output: in place of what rp2040js lacks of the
// peripherals' wires. The desktop simulation in rigline-rig has the same parts; keep the two alike.
//
// I2C: rp2040js has the controller; its interrupts, the time of bits, devices and held lines are here. SPI: rp2040js has the
// controller; the time of bits and the device are here. PWM: rp2040js has the slices; the counting of edges at a pin, which it never
// does while any slice drives a pin, is here.

const IC_INTR_MASK = 0x30;
const TX_EMPTY = 1 << 4;
const RX_FULL = 1 << 2;
const I2C_BITS = 9; // eight of data and the acknowledgement
const RESET_I2C0 = 1 << 3;
const [CSR, CTR] = [0x00, 0x08];
const SLICE = 0x14;
const DIVMODE = 0x30;
const RISING = 0x20;
const ENABLED = 1;
const FUNCTION_PWM = 4;
const FUNCTION_SIO = 5;
const RESETS = 0x4000c;

export const WIRES = {
  i2c: { index: 0, sda: 20, scl: 21 },
  spi: { index: 0, cs: 17 },
  counter: { pin: 13, slice: 6 },
  /** A low-pass filter to ADC 2. */
  pwm: { pin: 8, slice: 4, adc: 2 },
};

export const DEVICES = {
  thermometer: 0x48,
  thermometerReads: [0x19, 0x00],
  eeprom: 0x50,
  flashId: [0xef, 0x40, 0x15],
  millivolts: 2700,
  clockHertz: 1000,
};

/** The parts of one board under test. `hasPower()` tells whether its devices answer, `now()` is emulated time. */
export class Instruments {
  constructor(now, hasPower) {
    this.now = now;
    this.hasPower = hasPower;
    this.memory = new Uint8Array(256).fill(0xff);
    this.pointer = 0;
    this.register = 0;
    this.hold = null;
    this.hertz = DEVICES.clockHertz;
    this.clockSince = null;
    this.edgesBefore = 0;
  }

  attach(mcu) {
    this.mcu = mcu;
    this.#attachI2c(mcu.i2c[WIRES.i2c.index]);
    this.#attachSpi(mcu.spi[WIRES.spi.index]);
    this.#attachCounter(mcu.pwm);
    this.setHold(this.hold);
  }

  /** The board's clock output begins or ends, with a rising edge at once. */
  setClock(running) {
    if (running === (this.clockSince !== null)) return;
    this.edgesBefore = this.#edges();
    this.clockSince = running ? this.now() : null;
  }

  setClockHertz(hertz) {
    const running = this.clockSince !== null;
    this.setClock(false);
    this.hertz = hertz;
    this.setClock(running);
  }

  /** A device holds a line of the I2C bus low: `sda`, `scl`; `clock` stretches the clock without end once it is addressed; null ends it. */
  setHold(hold) {
    if (![null, 'sda', 'scl', 'clock'].includes(hold)) throw new Error('hold is sda, scl, clock or null');
    this.hold = hold;
    // Pull-ups.
    this.mcu.gpio[WIRES.i2c.sda].setInputValue(hold !== 'sda');
    this.mcu.gpio[WIRES.i2c.scl].setInputValue(hold !== 'scl');
  }

  /** The part of a period for which the PWM output is high. */
  duty() {
    const pin = this.mcu.gpio[WIRES.pwm.pin];
    if (pin.functionSelect === FUNCTION_SIO) return pin.outputEnable && pin.outputValue ? 1 : 0;
    const { csr, cc, top } = this.mcu.pwm.channels[WIRES.pwm.slice];
    if (pin.functionSelect !== FUNCTION_PWM || !(csr & ENABLED)) return 0;
    return Math.min(1, (cc & 0xffff) / (top + 1));
  }

  #attachI2c(i2c) {
    const { clock } = this.mcu;
    let next = () => {};
    const alarm = clock.createAlarm(() => next());
    const bits = (count, then) => {
      next = then;
      const cycles = i2c.sclHighPeriod + i2c.sclLowPeriod;
      alarm.schedule((count * cycles * 1e9) / this.mcu.clkPeri);
    };
    let device = null;
    let first = true;
    i2c.onStart = () => bits(1, () => i2c.completeStart());
    i2c.onConnect = (address) => {
      device = this.hasPower() ? [DEVICES.eeprom, DEVICES.thermometer].find((known) => known === address) : undefined;
      first = true;
      if (this.hold === 'clock' && device !== undefined) return;
      bits(I2C_BITS, () => i2c.completeConnect(device !== undefined));
    };
    i2c.onWriteByte = (byte) => {
      bits(I2C_BITS, () => {
        if (first) this.#setPointer(device, byte);
        else if (device === DEVICES.eeprom) this.memory[this.pointer++ & 0xff] = byte;
        first = false;
        i2c.completeWrite(true);
      });
    };
    let read = 0;
    i2c.onReadByte = (acknowledged) => {
      bits(I2C_BITS, () => {
        const byte = device === DEVICES.eeprom ? this.memory[this.pointer++ & 0xff] : this.#temperature(read++);
        if (!acknowledged) read = 0;
        i2c.completeRead(byte);
      });
    };
    i2c.onStop = () => bits(1, () => i2c.completeStop());
    this.#giveInterrupts(i2c);
    // rp2040js' reset controller resets nothing. A controller that waits for a device forgets it by that alone.
    const resets = this.mcu.peripherals[RESETS];
    const write = resets.writeUint32.bind(resets);
    resets.writeUint32 = (offset, value) => {
      if (offset === 0 && value & RESET_I2C0) {
        alarm.cancel();
        Object.assign(i2c, { state: 0, busy: false, stop: false, pendingRestart: false, enable: 0, abortSource: 0, intRaw: 0, intEnable: 0 });
        i2c.txFIFO.reset();
        i2c.rxFIFO.reset();
        i2c.checkInterrupts();
      }
      write(offset, value);
    };
  }

  /** rp2040js has no mask of the controller's interrupts, and raises two for a moment that last while a queue has its level. */
  #giveInterrupts(i2c) {
    const { mcu } = this;
    i2c.checkInterrupts = () => {
      const level = (bit, is) => (i2c.intRaw = is ? i2c.intRaw | bit : i2c.intRaw & ~bit);
      level(TX_EMPTY, i2c.enable & ENABLED && i2c.txFIFO.itemCount <= i2c.txThreshold);
      level(RX_FULL, i2c.rxFIFO.itemCount > i2c.rxThreshold);
      mcu.setInterrupt(i2c.irq, (i2c.intRaw & i2c.intEnable) !== 0);
    };
    const [read, write] = [i2c.readUint32.bind(i2c), i2c.writeUint32.bind(i2c)];
    i2c.readUint32 = (offset) => {
      const value = read(offset);
      i2c.checkInterrupts();
      return value;
    };
    i2c.writeUint32 = (offset, value) => {
      if (offset === IC_INTR_MASK) i2c.intEnable = value & 0x1fff;
      else write(offset, value);
      i2c.checkInterrupts();
    };
    for (const name of ['completeRead', 'completeWrite', 'completeConnect']) {
      const complete = i2c[name].bind(i2c);
      i2c[name] = (value) => {
        complete(value);
        i2c.checkInterrupts();
      };
    }
  }

  #setPointer(device, byte) {
    if (device === DEVICES.eeprom) this.pointer = byte;
    else this.register = byte;
  }

  #temperature(place) {
    return this.register === 0 ? DEVICES.thermometerReads[place % 2] : 0;
  }

  #attachSpi(spi) {
    const { gpio, clock } = this.mcu;
    let command = null;
    let count = 0;
    let address = 0;
    const cs = gpio[WIRES.spi.cs];
    cs.addListener(() => ([command, count, address] = [null, 0, 0]));
    /** What the flash memory sends while it receives this byte. */
    const answer = (byte) => {
      if (!this.hasPower()) return 0;
      const place = count++;
      if (command === null) {
        command = this.#isFlashMode(spi) ? byte : 0;
        return 0xff;
      }
      if (command === 0x9f) return DEVICES.flashId[(place - 1) % DEVICES.flashId.length];
      if (command === 0x03 && place === 3) address = byte;
      if (command === 0x03 && place > 3) return address++ & 0xff;
      return 0xff;
    };
    let received = 0;
    const alarm = clock.createAlarm(() => spi.completeTransmit(received));
    spi.onTransmit = (byte) => {
      const selected = cs.outputEnable && !cs.outputValue;
      received = selected ? answer(byte) : 0xff;
      const hertz = spi.clockFrequency;
      alarm.schedule((8 * 1e9) / (Number.isFinite(hertz) && hertz > 0 ? hertz : 1e6));
    };
  }

  /** CPOL and CPHA both 0 or both 1. */
  #isFlashMode({ control0 }) {
    return ((control0 >> 6) & 1) === ((control0 >> 7) & 1);
  }

  #edges() {
    if (this.clockSince === null) return this.edgesBefore;
    return this.edgesBefore + Math.floor(((this.now() - this.clockSince) * this.hertz) / 1e9) + 1;
  }

  #attachCounter(pwm) {
    const [read, write] = [pwm.readUint32.bind(pwm), pwm.writeUint32.bind(pwm)];
    const base = WIRES.counter.slice * SLICE;
    let csr = 0;
    let value = 0;
    let since = 0;
    const counts = () => csr & ENABLED && (csr & DIVMODE) === RISING;
    const count = () => value + (counts() ? this.#edges() - since : 0);
    pwm.readUint32 = (offset) => (offset === base + CTR && counts() ? count() & 0xffff : read(offset));
    pwm.writeUint32 = (offset, written) => {
      if (offset === base + CSR) [value, since, csr] = [count(), this.#edges(), written];
      if (offset === base + CTR) [value, since] = [written, this.#edges()];
      write(offset, written);
    };
  }
}

