// The board under test that the rig drives: rails on GPIOs and ADC channels, a boot that ends with an LED, a reset button.
// The desktop simulation in rigline-rig has the same figures; keep the two alike.
import { GPIOPinState } from 'rp2040js';
import { DutConsole } from './dut-console.mjs';
import { DEVICES, Instruments, WIRES } from './instruments.mjs';

/** The rig's wiring, which is also the pin map in firmware-example/README.md. */
export const PINS = {
  rails: {
    '3v3': { enable: 2, adc: 0, millivolts: 3300, rampMs: 2 },
    '5v': { enable: 3, adc: 1, millivolts: 5000, rampMs: 4 },
  },
  /** Rails reach the ADC through two equal resistors; its reference is 3.3 V. */
  divider: 2,
  referenceMillivolts: 3300,
  /** High while the rig presses the button. */
  resetButton: 6,
  /** High while the rig presses the board's other button, which toggles its second LED when let go. */
  userButton: 7,
  /** Low while the rig holds the board's boot pin: a board that starts then stays in its boot loader. */
  bootButton: 22,
  /** The UART of the rig that the board's console is wired to: GP4 out, GP5 in. */
  console: 1,
  /** High while the board under test is up. */
  led: 10,
  led2: 11,
  /** A wire from one pin of the rig to another. */
  loopback: { from: 14, to: 15 },
  /** ADC 2 (GP28) has the filtered PWM output: see instruments.mjs. ADC 4 is the chip's temperature sensor. */
  temperature: { adc: 4, celsius: 27 },
};

export const TIMES = { bootMs: 300, resetHoldMs: 50, fallMs: 10, debounceMs: 20 };
/** Noise of a reading: up to this many steps of the ADC either way. */
const NOISE = 2;
const MS = 1e6;

/** One board under test. `now()` is emulated time in nanoseconds; it goes on when the rig is reset. */
export class BoardUnderTest {
  constructor(now) {
    this.now = now;
    this.rails = Object.fromEntries(Object.keys(PINS.rails).map((name) => [name, { on: false, since: 0, from: 0 }]));
    this.startAt = null;
    this.bootAt = null;
    this.bootPressed = false;
    this.console = new DutConsole(() => this.#restart());
    this.pressedAt = null;
    this.userPressedAt = null;
    this.up = false;
    this.led2 = false;
    this.readings = 0;
    this.overrides = new Map();
    this.instruments = new Instruments(now, () => this.#railMillivolts('3v3') >= DEVICES.millivolts);
  }

  /** Wires the board to a rig, also to one that was just reset: all its outputs are then low. */
  attach(mcu, uart) {
    this.mcu = mcu;
    this.console.attach(uart, mcu.clock);
    this.alarm = mcu.clock.createAlarm(() => this.#update());
    for (const [name, { enable }] of Object.entries(PINS.rails)) {
      this.#follow(enable, (on) => this.#switchRail(name, on));
    }
    this.#follow(PINS.resetButton, (pressed) => this.#press(pressed));
    this.#follow(PINS.userButton, (pressed) => this.#pressUser(pressed));
    this.#follow(PINS.bootButton, (released) => (this.bootPressed = !released && mcu.gpio[PINS.bootButton].outputEnable));
    this.#follow(PINS.loopback.from, (high) => mcu.gpio[PINS.loopback.to].setInputValue(high));
    mcu.adc.onADCRead = (channel) => {
      mcu.adc.channelValues[channel] = this.#sample(channel);
      mcu.adc.currentChannel = channel;
      mcu.adc.sampleAlarm.schedule(mcu.adc.sampleTime * 1000);
    };
    this.instruments.attach(mcu);
    this.#update();
    mcu.gpio[PINS.led].setInputValue(this.up);
    mcu.gpio[PINS.led2].setInputValue(this.led2);
  }

  /** Fixes an ADC channel at a voltage on the pin, in millivolts; null gives it back to the board. */
  setChannel(channel, millivolts) {
    if (millivolts === null) this.overrides.delete(channel);
    else this.overrides.set(channel, millivolts);
  }

  state() {
    const rails = Object.keys(PINS.rails).map((name) => [name, Math.round(this.#railMillivolts(name))]);
    return { up: this.up, booting: this.bootAt !== null, rails: Object.fromEntries(rails) };
  }

  #follow(index, react) {
    const pin = this.mcu.gpio[index];
    const level = () => pin.value === GPIOPinState.High;
    let last = null;
    const look = () => {
      if (level() === last) return;
      last = level();
      react(last);
    };
    pin.addListener(look);
    look();
  }

  #switchRail(name, on) {
    const rail = this.rails[name];
    if (rail.on === on) return;
    Object.assign(rail, { from: this.#railMillivolts(name), on, since: this.now() });
    if (name !== '3v3') return;
    // Nine tenths of the ramp, and the board comes out of its power-on reset.
    this.#setUp(false);
    this.startAt = on ? this.now() + 0.9 * PINS.rails[name].rampMs * MS : null;
    this.bootAt = on ? this.startAt + TIMES.bootMs * MS : null;
    this.#update();
  }

  #restart() {
    this.#setUp(false);
    this.startAt = this.now();
    this.bootAt = this.startAt + TIMES.bootMs * MS;
    this.#update();
  }

  #press(pressed) {
    if (pressed === (this.pressedAt !== null)) return;
    const held = pressed ? 0 : this.now() - this.pressedAt;
    this.pressedAt = pressed ? this.now() : null;
    if (!pressed && held >= TIMES.resetHoldMs * MS && this.rails['3v3'].on) this.#restart();
    else this.#update();
  }

  #pressUser(pressed) {
    if (pressed === (this.userPressedAt !== null)) return;
    const held = pressed ? 0 : this.now() - this.userPressedAt;
    this.userPressedAt = pressed ? this.now() : null;
    this.#update();
    if (!pressed && this.up && held >= TIMES.debounceMs * MS) this.#setLed2(!this.led2);
  }

  /** Does what is due, and asks to be called for what is next. */
  #update() {
    const now = this.now();
    const heldAt = this.pressedAt === null ? Infinity : this.pressedAt + TIMES.resetHoldMs * MS;
    if (now >= heldAt) {
      this.#setUp(false);
    } else {
      if (this.startAt !== null && now >= this.startAt) {
        this.startAt = null;
        this.console.start(this.bootPressed);
        if (this.bootPressed) this.bootAt = null;
      }
      if (this.bootAt !== null && now >= this.bootAt) {
        this.bootAt = null;
        this.#setUp(true);
      }
    }
    const next = [this.startAt ?? Infinity, this.bootAt ?? Infinity, heldAt].filter((at) => at > now && at < Infinity);
    if (next.length > 0) this.alarm.schedule(Math.min(...next) - now);
    else this.alarm.cancel();
  }

  #setUp(up) {
    this.up = up;
    this.instruments.setClock(up);
    this.mcu.gpio[PINS.led].setInputValue(up);
    if (up) {
      this.console.up();
    } else {
      this.startAt = null;
      this.bootAt = null;
      this.console.down();
      this.#setLed2(false);
    }
  }

  #setLed2(lit) {
    this.led2 = lit;
    this.mcu.gpio[PINS.led2].setInputValue(lit);
  }

  #railMillivolts(name) {
    const { on, since, from } = this.rails[name];
    const { millivolts, rampMs } = PINS.rails[name];
    const elapsed = (this.now() - since) / MS;
    const slope = on ? millivolts / rampMs : -millivolts / TIMES.fallMs;
    return Math.min(millivolts, Math.max(0, from + slope * elapsed));
  }

  #sample(channel) {
    const steps = (this.#pinMillivolts(channel) / PINS.referenceMillivolts) * 4096;
    return Math.min(4095, Math.max(0, Math.round(steps) + this.#noise(channel)));
  }

  #pinMillivolts(channel) {
    if (this.overrides.has(channel)) return this.overrides.get(channel);
    const rail = Object.keys(PINS.rails).find((name) => PINS.rails[name].adc === channel);
    if (rail) return this.#railMillivolts(rail) / PINS.divider;
    if (channel === WIRES.pwm.adc) return (this.instruments.duty() * PINS.referenceMillivolts) / PINS.divider;
    // RP2040 datasheet §4.9.5.
    if (channel === PINS.temperature.adc) return 706 - 1.721 * (PINS.temperature.celsius - 27);
    return 0;
  }

  /** The n-th reading has the same noise in every run. */
  #noise(channel) {
    let x = (Math.imul(++this.readings, 0x9e3779b1) ^ Math.imul(channel + 1, 0x85ebca6b)) >>> 0;
    x = Math.imul(x ^ (x >>> 15), 0x2c1b3c6d) >>> 0;
    return ((x >>> 8) % (2 * NOISE + 1)) - NOISE;
  }
}
