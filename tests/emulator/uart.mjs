// A PL011 UART with its wire (RP2040 datasheet §4.2), in place of the registers that matter of rp2040js' RPUART, whose
// transmit interrupt never ends and whose bytes take no time.

const [DR, RSR, FR, LCR, CR, IFLS, IMSC] = [0x00, 0x04, 0x18, 0x2c, 0x30, 0x34, 0x38];
const [RIS, MIS, ICR, DMACR] = [0x3c, 0x40, 0x44, 0x48];
const [TXFE, RXFF, TXFF, RXFE, BUSY] = [1 << 7, 1 << 6, 1 << 5, 1 << 4, 1 << 3];
const [RXI, TXI, RTI, OEI] = [1 << 4, 1 << 5, 1 << 6, 1 << 10];
const OVERRUN = 1 << 11;
const [BRK, PEN] = [1 << 0, 1 << 1]; // of LCR_H
const DEPTH = 32;
const BITS = 10; // start, eight data bits, stop
const TIMEOUT_BITS = 32;

export class UartWire {
  /** `onByte(byte)` gets what the board sends, `onBreak()` is called when it begins a break. */
  constructor(mcu, index, onByte) {
    const { clock } = mcu;
    this.uart = mcu.uart[index];
    this.mcu = mcu;
    this.onByte = onByte;
    this.onBreak = () => {};
    this.isBreak = false;
    this.overruns = 0;
    this.incoming = [];
    this.arriving = false;
    this.rx = [];
    this.tx = [];
    this.shifting = null;
    this.levels = 0x12; // half full, both ways
    this.raw = 0;
    this.mask = 0;
    this.dma = 0;
    this.txAlarm = clock.createAlarm(() => this.#sent());
    this.rxAlarm = clock.createAlarm(() => this.#received());
    this.idleAlarm = clock.createAlarm(() => this.rx.length > 0 && this.#raise(RTI));

    const { uart } = this;
    const [read, write] = [uart.readUint32.bind(uart), uart.writeUint32.bind(uart)];
    uart.readUint32 = (offset) => this.#read(offset) ?? read(offset);
    uart.writeUint32 = (offset, value) => this.#write(offset, value) || write(offset, value);
    uart.checkInterrupts = () => this.#interrupt();
  }

  /** Puts bytes on the wire to the board, at the baud rate that it set. */
  send(bytes) {
    for (const byte of bytes) this.incoming.push(byte);
    if (this.arriving || this.incoming.length === 0) return;
    this.arriving = true;
    this.rxAlarm.schedule(this.#nanos(BITS));
  }

  /** Speed and framing that the board has set. */
  line() {
    return { speed: this.uart.baudRate, dataBits: this.uart.wordLength, parity: (this.uart.lineCtrlRegister & PEN) !== 0 };
  }

  /** A byte arrives now, with the errors of it in the bits that DR has for them. */
  arrive(value) {
    if (!this.uart.enabled || !this.uart.rxEnabled) return;
    if (this.rx.length >= this.#depth()) {
      this.overruns += 1;
      this.rx[this.rx.length - 1] |= OVERRUN;
      this.#raise(OEI);
    } else {
      this.rx.push(value);
      if (this.rx.length >= this.#level(3)) this.#raise(RXI);
    }
    this.idleAlarm.schedule(this.#nanos(TIMEOUT_BITS));
  }

  #read(offset) {
    switch (offset) {
      case DR: {
        const value = this.rx.shift() ?? 0;
        if (this.rx.length < this.#level(3)) this.raw &= ~RXI;
        if (this.rx.length === 0) this.raw &= ~RTI;
        this.#interrupt();
        return value;
      }
      case FR:
        return (
          (this.tx.length === 0 ? TXFE : 0) |
          (this.tx.length >= this.#depth() ? TXFF : 0) |
          (this.rx.length === 0 ? RXFE : 0) |
          (this.rx.length >= this.#depth() ? RXFF : 0) |
          (this.shifting !== null ? BUSY : 0)
        );
      case IFLS:
        return this.levels;
      case CR:
        return this.uart.ctrlRegister;
      case IMSC:
        return this.mask;
      case RIS:
        return this.raw;
      case MIS:
        return this.raw & this.mask;
      case DMACR:
        return this.dma;
      case RSR: // the errors are in DR too
      case ICR:
        return 0;
    }
    return undefined;
  }

  #write(offset, value) {
    switch (offset) {
      case DR:
        if (this.tx.length < this.#depth()) this.tx.push(value & 0xff);
        if (this.tx.length > this.#level(0)) this.raw &= ~TXI;
        this.#shift();
        break;
      case IFLS:
        this.levels = value & 0x3f;
        break;
      case DMACR:
        this.dma = value & 7;
        break;
      case RSR:
        break;
      case IMSC:
        this.mask = value & 0x7ff;
        break;
      case ICR:
        this.raw &= ~value;
        break;
      case LCR: {
        const isBreak = (value & BRK) !== 0;
        if (isBreak && !this.isBreak) this.onBreak();
        this.isBreak = isBreak;
        return false;
      }
      default:
        return false;
    }
    this.#interrupt();
    return true;
  }

  #shift() {
    if (this.shifting !== null || this.tx.length === 0) return;
    this.shifting = this.tx.shift();
    this.txAlarm.schedule(this.#nanos(BITS));
    // The interrupt comes when the FIFO falls to its level, not while it is there.
    if (this.tx.length === this.#level(0)) this.#raise(TXI);
  }

  #sent() {
    const byte = this.shifting;
    this.shifting = null;
    this.onByte(byte);
    this.#shift();
  }

  #received() {
    this.arriving = false;
    const byte = this.incoming.shift();
    this.send([]);
    this.arrive(byte);
  }

  #raise(interrupt) {
    this.raw |= interrupt;
    this.#interrupt();
  }

  #interrupt() {
    this.mcu.setInterrupt(this.uart.irq, (this.raw & this.mask) !== 0);
  }

  #depth() {
    return this.uart.fifosEnabled ? DEPTH : 1;
  }

  /** Bytes at which the FIFO's interrupt comes; `shift` 0 is transmit, 3 receive. */
  #level(shift) {
    if (!this.uart.fifosEnabled) return shift === 0 ? 0 : 1;
    return [4, 8, 16, 24, 28][(this.levels >> shift) & 7] ?? 16;
  }

  #nanos(bits) {
    const baud = this.uart.baudRate;
    return (bits * 1e9) / (Number.isFinite(baud) && baud > 0 ? baud : 115200);
  }
}
