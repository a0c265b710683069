// A USB host with one CDC ACM port, on the bus of an emulated RP2040 in device mode.
//
// rp2040js completes each transfer when the firmware arms it, which hides what happens when a host does not read, and its
// USBCDC class sends CDC requests to the wrong recipient. So this takes over the endpoints: a buffer stays AVAILABLE until
// this host moves the packet (RP2040 datasheet §4.1.2.5), data toggles are checked as a host checks them, and packets
// take the time that they take at full speed.
import { parseDescriptors } from './descriptors.mjs';

const AVAILABLE = 1 << 10;
const STALL = 1 << 11;
const DATA1 = 1 << 13;
const FULL = 1 << 15;
const LENGTH = 0x3ff;
const ENDPOINT_ENABLED = 1 << 31;
const SIE_SUSPENDED = 1 << 4;
const SIE_RESUME = 1 << 11;

const CONTROL_BUFFER = 0x100;
const IN = 0;
const OUT = 4;

const MS = 1e6;
const RESET_TO_SETUP = 2 * MS;
const GIVE_UP = 2000 * MS;
/** How many packets the log keeps at least: 2 MB. */
const LOG_LENGTH = 32768;

/**
 * Calls `onData(bytes)` for each packet from the port, `onReady()` when the port is configured, `onRoom()` when the
 * device has taken what was sent, `onWork()` when there is something for the emulation to do.
 */
export class UsbHost {
  constructor(mcu, { onData, onReady, onRoom, onWork, now }) {
    Object.assign(this, { mcu, usb: mcu.usbCtrl, clock: mcu.clock, onData, onReady, onRoom, onWork, now });
    this.identity = null;
    this.ports = null;
    this.configured = false;
    this.plugged = true;
    this.suspended = false;
    this.dtr = false;
    /** Whether the host fetches packets from the port, as an operating system does while the port is open. */
    this.polling = false;
    this.outgoing = [];
    this.outgoingBytes = 0;
    this.toggle = { in: 0, out: 0 };
    this.counts = { inPackets: 0, inBytes: 0, emptyInPackets: 0, outPackets: 0, outBytes: 0, toggleErrors: 0 };
    this.packets = [];
    this.packetsDropped = 0;
    /** Cycle counter when the device got its last packet, and when it first armed one after that. */
    this.turnaround = { in: 0, out: 0, open: false };

    this.controlPacket = 8;
    this.transfers = [];
    this.active = null;
    this.busyIn = false;
    this.busyOut = false;
    this.alarms = {
      setup: this.clock.createAlarm(() => this.#enumerate()),
      in: this.clock.createAlarm(() => this.#takeIn()),
      out: this.clock.createAlarm(() => this.#giveOut()),
      control: this.clock.createAlarm(() => this.#moveControl()),
      giveUp: this.clock.createAlarm(() => this.#finish(new Error('the device does not answer on endpoint 0'))),
    };
    this.usb.DPRAMUpdated = (offset, value) => this.#armed(offset, value);
    this.usb.onUSBEnabled = () => this.plugged && this.usb.resetDevice();
    this.usb.onResetReceived = () => this.alarms.setup.schedule(RESET_TO_SETUP);
  }

  /** Queues bytes for the device. */
  send(bytes) {
    if (bytes.length === 0) return;
    this.outgoing.push(bytes);
    this.outgoingBytes += bytes.length;
    this.#startOut();
  }

  /** Forgets what the device has not taken. */
  discard() {
    this.outgoing = [];
    this.outgoingBytes = 0;
  }

  setPolling(polling) {
    this.polling = polling;
    this.#startIn();
  }

  /** Drops or raises DTR (and RTS); resolves when the device has acknowledged it. */
  async setDtr(dtr) {
    const SET_CONTROL_LINE_STATE = 0x22;
    await this.#control([0x21, SET_CONTROL_LINE_STATE, dtr ? 3 : 0, 0, this.ports.interface, 0, 0, 0]);
    this.dtr = dtr;
  }

  /** Resets the bus; the host then enumerates the device again. Nothing survives but what the device keeps. */
  reset() {
    this.#forget();
    this.plugged = true;
    this.suspended = false;
    this.usb.resetDevice();
    this.onWork();
  }

  /** Stops the bus: for the device, an unplugged cable with power from elsewhere, or a sleeping host. */
  suspend() {
    this.suspended = true;
    this.usb.sieStatus |= SIE_SUSPENDED;
    this.usb.sieStatusUpdated();
    // The firmware clears the bit, which rp2040js does not let it.
    const later = this.clock.createAlarm(() => {
      this.usb.sieStatus &= ~SIE_SUSPENDED;
      this.usb.sieStatusUpdated();
    });
    later.schedule(MS / 10);
    this.onWork();
  }

  resume() {
    this.suspended = false;
    this.usb.sieStatus |= SIE_RESUME;
    this.usb.sieStatusUpdated();
    this.#startIn();
    this.#startOut();
    this.onWork();
  }

  unplug() {
    this.#forget();
    this.plugged = false;
    this.suspend();
  }

  /** The device was reset or is no more; nothing that was begun with it will end. */
  gone() {
    this.#forget();
    this.plugged = false;
  }

  #forget() {
    this.configured = false;
    this.dtr = false;
    this.discard();
    this.#finish(new Error('the bus was reset'));
    for (const transfer of this.transfers.splice(0)) transfer.reject(new Error('the bus was reset'));
  }

  async #enumerate() {
    const DESCRIPTOR = { device: 1, configuration: 2, string: 3 };
    const descriptor = (type, index, length, language = 0) =>
      this.#control([0x80, 6, index, type, language & 0xff, language >> 8, length & 0xff, length >> 8]);
    const string = async (index) => {
      if (index === 0) return null;
      const bytes = await descriptor(DESCRIPTOR.string, index, 255, 0x0409);
      return Buffer.from(bytes.subarray(2)).toString('utf16le');
    };
    try {
      const device = await descriptor(DESCRIPTOR.device, 0, 18);
      await this.#control([0x00, 5, 1, 0, 0, 0, 0, 0]);
      const head = await descriptor(DESCRIPTOR.configuration, 0, 9);
      const total = head[2] | (head[3] << 8);
      this.ports = parseDescriptors(await descriptor(DESCRIPTOR.configuration, 0, total));
      this.identity = {
        vendor_id: device[8] | (device[9] << 8),
        product_id: device[10] | (device[11] << 8),
        manufacturer: await string(device[14]),
        product: await string(device[15]),
        serial_number: await string(device[16]),
        control_protocol: this.ports.protocol,
      };
      this.toggle = { in: 0, out: 0 };
      await this.#control([0x00, 9, 1, 0, 0, 0, 0, 0]);
      const coding = [0x00, 0xc2, 0x01, 0x00, 0, 0, 8]; // 115200 8N1
      await this.#control([0x21, 0x20, 0, 0, this.ports.interface, 0, coding.length, 0], coding);
      this.configured = true;
      this.onReady(null);
      this.#startIn();
      this.#startOut();
    } catch (error) {
      this.onReady(error);
    }
  }

  // Endpoint 0 (USB 2.0 §8.5.3): SETUP, data packets one way, an empty packet the other way.

  #control(setup, data = []) {
    return new Promise((resolve, reject) => {
      this.transfers.push({ setup: Uint8Array.from(setup), data: Uint8Array.from(data), resolve, reject, received: [] });
      this.#nextTransfer();
      this.onWork();
    });
  }

  #nextTransfer() {
    if (this.active || this.transfers.length === 0) return;
    const transfer = (this.active = this.transfers.shift());
    transfer.expected = transfer.setup[6] | (transfer.setup[7] << 8);
    transfer.fromDevice = (transfer.setup[0] & 0x80) !== 0;
    transfer.stage = transfer.expected > 0 ? 'data' : 'status';
    for (const direction of [IN, OUT]) {
      this.#setBuffer(0, direction, this.#buffer(0, direction) & ~(AVAILABLE | STALL));
    }
    this.alarms.giveUp.schedule(GIVE_UP);
    this.usb.sendSetupPacket(transfer.setup);
  }

  #moveControl() {
    const transfer = this.active;
    if (!transfer) return;
    const direction = (transfer.stage === 'data') === transfer.fromDevice ? IN : OUT;
    const control = this.#buffer(0, direction);
    if (!(control & AVAILABLE)) return;
    const length = control & LENGTH;
    if (transfer.stage === 'status') {
      this.#done(0, direction, direction === OUT ? 0 : length);
      return this.#finish(null);
    }
    if (direction === IN) {
      transfer.received.push(...this.mcu.usbDPRAM.subarray(CONTROL_BUFFER, CONTROL_BUFFER + length));
      // The device descriptor, which is read first, says how long a packet is; no device has shorter ones than 8 bytes.
      if (transfer.setup[1] === 6 && transfer.setup[3] === 1) this.controlPacket = transfer.received[7];
      if (length < this.controlPacket || transfer.received.length >= transfer.expected) transfer.stage = 'status';
      this.#done(0, IN, length);
    } else {
      const packet = transfer.data.subarray(0, this.controlPacket);
      transfer.data = transfer.data.subarray(this.controlPacket);
      this.mcu.usbDPRAM.set(packet, CONTROL_BUFFER);
      if (transfer.data.length === 0) transfer.stage = 'status';
      this.#done(0, OUT, packet.length);
    }
  }

  #finish(error) {
    const transfer = this.active;
    if (!transfer) return;
    this.active = null;
    this.alarms.giveUp.cancel();
    if (error) transfer.reject(error);
    else transfer.resolve(Uint8Array.from(transfer.received));
    this.#nextTransfer();
  }

  // What the firmware arms.

  #armed(offset, value) {
    if (this.usb.hostMode || offset < 0x80 || offset > 0xfc) return;
    const endpoint = (offset - 0x80) >> 3;
    const out = (offset & 4) !== 0;
    if (endpoint === 0) {
      if (value & STALL) return this.#finish(new Error('the device refused the request'));
      if (value & AVAILABLE) this.alarms.control.schedule(wire(value & LENGTH));
      return;
    }
    if (!(value & AVAILABLE)) return;
    if (out) return this.#startOut();
    if (endpoint === this.ports?.in && this.turnaround.open) {
      this.turnaround.open = false;
      this.turnaround.in = this.mcu.core.cycles;
    }
    this.#startIn();
  }

  #startIn() {
    if (this.busyIn || !this.polling || !this.#ready(this.ports?.in, IN)) return;
    this.busyIn = true;
    this.alarms.in.schedule(wire(this.#buffer(this.ports.in, IN) & LENGTH));
    this.onWork();
  }

  #takeIn() {
    this.busyIn = false;
    const endpoint = this.ports?.in;
    if (!this.polling || !this.#ready(endpoint, IN)) return;
    const control = this.#buffer(endpoint, IN);
    const start = this.#address(endpoint, IN);
    const bytes = Buffer.from(this.mcu.usbDPRAM.subarray(start, start + (control & LENGTH)));
    this.#done(endpoint, IN, bytes.length);
    const toggle = control & DATA1 ? 1 : 0;
    const repeated = toggle !== this.toggle.in;
    this.packets.push({ nanos: this.now(), bytes, repeated });
    if (this.packets.length === 2 * LOG_LENGTH) {
      this.packets.splice(0, LOG_LENGTH);
      this.packetsDropped += LOG_LENGTH;
    }
    if (repeated) {
      // A host takes such a packet for one that it has already (USB 2.0 §8.6.3).
      this.counts.toggleErrors += 1;
      return;
    }
    this.toggle.in ^= 1;
    this.counts.inPackets += 1;
    this.counts.inBytes += bytes.length;
    if (bytes.length === 0) this.counts.emptyInPackets += 1;
    this.onData(bytes);
  }

  #startOut() {
    if (this.busyOut || this.outgoingBytes === 0 || !this.#ready(this.ports?.out, OUT)) return;
    this.busyOut = true;
    this.alarms.out.schedule(wire(Math.min(64, this.outgoingBytes)));
    this.onWork();
  }

  #giveOut() {
    this.busyOut = false;
    const endpoint = this.ports?.out;
    if (this.outgoingBytes === 0 || !this.#ready(endpoint, OUT)) return;
    const bytes = this.#nextPacket(64);
    const control = this.#buffer(endpoint, OUT);
    const repeated = (control & DATA1 ? 1 : 0) !== this.toggle.out;
    this.toggle.out ^= 1;
    if (repeated) {
      // The device acknowledges it, takes it for one that it has already, and continues waiting.
      this.counts.toggleErrors += 1;
      return this.#startOut();
    }
    this.counts.outPackets += 1;
    this.counts.outBytes += bytes.length;
    this.mcu.usbDPRAM.set(bytes, this.#address(endpoint, OUT));
    this.turnaround = { ...this.turnaround, open: true, out: this.mcu.core.cycles };
    this.#done(endpoint, OUT, bytes.length);
    this.onRoom();
  }

  #nextPacket(limit) {
    const all = Buffer.concat(this.outgoing);
    const packet = all.subarray(0, limit);
    this.outgoing = all.length > limit ? [all.subarray(limit)] : [];
    this.outgoingBytes = all.length - packet.length;
    return packet;
  }

  #ready(endpoint, direction) {
    if (!this.configured || this.suspended || endpoint === undefined) return false;
    const enabled = this.usb.readEndpointControlReg(endpoint, direction === OUT) & ENDPOINT_ENABLED;
    return enabled && (this.#buffer(endpoint, direction) & AVAILABLE) !== 0;
  }

  #done(endpoint, direction, length) {
    let control = this.#buffer(endpoint, direction) & ~(AVAILABLE | LENGTH | FULL);
    control |= length | (direction === OUT ? FULL : 0);
    this.#setBuffer(endpoint, direction, control);
    this.usb.indicateBufferReady(endpoint, direction === OUT);
  }

  #buffer(endpoint, direction) {
    return this.mcu.usbDPRAMView.getUint32(0x80 + 8 * endpoint + direction, true);
  }

  #setBuffer(endpoint, direction, value) {
    this.mcu.usbDPRAMView.setUint32(0x80 + 8 * endpoint + direction, value, true);
  }

  #address(endpoint, direction) {
    return this.usb.getEndpointBufferOffset(endpoint, direction === OUT);
  }
}

/** Nanoseconds that a packet of `length` bytes takes at 12 Mbit/s, its token and handshake included. */
function wire(length) {
  return ((length + 13) * 8 * 1000) / 12;
}
