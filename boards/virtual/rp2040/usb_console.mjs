// The board's USB device controller and, behind it, a host that knows one class: CDC serial.
//
// Replaces two parts of rp2040js: its buffer handling, which swaps double buffers and cannot make
// the firmware wait, and its CDC host, which answers every OUT request with an empty packet (an
// interrupt storm; here a request waits until there is data). Registers are the library's.

import { RPUSBController } from "./chip.mjs";

const BUFFER_CONTROLS = 0x80, BUFFER_CONTROLS_END = 0xff;
const AVAILABLE = 1 << 10, FULL = 1 << 15, LENGTH = 0x3ff;
const PACKET_BYTES = 64;
const MAX_QUEUED_BYTES = 64 * 1024;
const REQUEST_GAP_NANOS = 200_000; // between control requests; real hosts take milliseconds
// From configuration to the first program that opens the port. A Ctrl-C that comes sooner than
// any real host could send it would interrupt the firmware while it makes its file system.
const OPEN_NANOS = 100_000_000;
const BULK_DELAY_MICROS = 10;

const SET_ADDRESS = 5, GET_DESCRIPTOR = 6, SET_CONFIGURATION = 9, SET_LINE_STATE = 0x22;
const TO_HOST = 0x80, CLASS_INTERFACE = 0x21;
const DESCRIPTOR_CONFIGURATION = 2, DESCRIPTOR_INTERFACE = 4, DESCRIPTOR_ENDPOINT = 5;
const CLASS_CDC_CONTROL = 2, CLASS_CDC_DATA = 10, BULK = 2;
const CONFIGURATION_HEADER_BYTES = 9;
const DTR_RTS = 3;

const pair = (word) => [word & 0xff, word >> 8];
const setup = (type, request, value, index, length) =>
  Uint8Array.from([type, request, ...pair(value), ...pair(index), ...pair(length)]);

/** Find the CDC function in a configuration descriptor: {control, dataIn, dataOut} or null. */
export function findCdc(descriptor) {
  let control = -1, dataIn = -1, dataOut = -1, inData = false;
  for (let at = 0; at + 1 < descriptor.length && descriptor[at] >= 2; at += descriptor[at]) {
    const [, type, second, third, , klass] = descriptor.slice(at, at + 6);
    if (type === DESCRIPTOR_INTERFACE) {
      if (klass === CLASS_CDC_CONTROL && control < 0) control = second;
      inData = klass === CLASS_CDC_DATA;
    } else if (type === DESCRIPTOR_ENDPOINT && inData && (third & 3) === BULK) {
      if (second & TO_HOST && dataIn < 0) dataIn = second & 0xf;
      if (!(second & TO_HOST) && dataOut < 0) dataOut = second & 0xf;
    }
  }
  return control >= 0 && dataIn >= 0 && dataOut >= 0 ? { control, dataIn, dataOut } : null;
}

export class UsbConsole extends RPUSBController {
  /**
   * @param rp2040 the chip
   * @param onData called with the bytes that the board prints
   * @param onConnected called when the console is configured and its DTR is set
   */
  constructor(rp2040, onData, onConnected) {
    super(rp2040, "USB");
    this.readDelayMicroseconds = BULK_DELAY_MICROS;
    this.onData = onData;
    this.onConnected = onConnected;
    this.paused = false;
    this.held = 0; // offset of the IN buffer control that waits while paused
    this.nextRequest = rp2040.clock.createAlarm(() => this.request());
    this.onUSBEnabled = () => this.resetDevice();
    this.onResetReceived = () => this.enumerate();
    this.queue = []; // for the board; bytes that come before it is connected are kept
    this.queuedBytes = 0;
    this.forget();
  }

  /** A device fresh from bus reset: nothing is known of it. */
  forget() {
    this.cdc = null;
    this.requests = [];
    this.expected = 0; // bytes of the control answer still to come
    this.answer = [];
    this.statusDue = false;
    this.outArmed = 0; // size of the OUT transfer that the firmware has prepared
    this.held = 0;
  }

  enumerate() {
    this.forget();
    const descriptor = (length, use) => ({
      packet: setup(TO_HOST, GET_DESCRIPTOR, DESCRIPTOR_CONFIGURATION << 8, 0, length),
      length,
      use,
    });
    this.requests = [
      { packet: setup(0, SET_ADDRESS, 1, 0, 0), length: 0 },
      descriptor(CONFIGURATION_HEADER_BYTES, (header) => {
        const total = header[2] | (header[3] << 8);
        this.requests.unshift(descriptor(total, (all) => this.configure(all)));
      }),
    ];
    this.request();
  }

  configure(descriptorBytes) {
    const cdc = findCdc(descriptorBytes);
    if (!cdc) {
      this.warn("the device has no CDC function: there is no console");
      return;
    }
    this.requests = [
      { packet: setup(0, SET_CONFIGURATION, 1, 0, 0), length: 0 },
      {
        packet: setup(CLASS_INTERFACE, SET_LINE_STATE, DTR_RTS, cdc.control, 0),
        length: 0,
        delayNanos: OPEN_NANOS,
        use: () => {
          this.cdc = cdc;
          this.onConnected();
          this.feed();
        },
      },
    ];
  }

  request() {
    const request = this.requests[0];
    if (!request) return;
    this.expected = request.length;
    this.answer = [];
    this.sendSetupPacket(request.packet);
  }

  finishRequest() {
    const done = this.requests.shift();
    done?.use?.(Uint8Array.from(this.answer));
    const next = this.requests[0];
    if (next) this.nextRequest.schedule(next.delayNanos ?? REQUEST_GAP_NANOS);
  }

  controlIn(data) {
    if (!this.requests.length) return;
    if (this.expected === 0) {
      this.finishRequest();
      return;
    }
    this.answer.push(...data);
    if (this.answer.length >= this.expected || data.length < PACKET_BYTES) this.statusDue = true;
  }

  /** Queue bytes for the board. Returns false when the caller should wait for `drained`. */
  send(bytes) {
    this.queue.push(bytes);
    this.queuedBytes += bytes.length;
    this.feed();
    return this.queuedBytes < MAX_QUEUED_BYTES;
  }

  /** Give the firmware the next packet if it has asked for one and there is one. */
  feed() {
    if (!this.cdc || !this.outArmed || !this.queuedBytes) return;
    const packet = new Uint8Array(Math.min(this.outArmed, this.queuedBytes));
    let filled = 0;
    while (filled < packet.length) {
      const head = this.queue[0];
      const part = head.subarray(0, packet.length - filled);
      packet.set(part, filled);
      filled += part.length;
      if (part.length === head.length) this.queue.shift();
      else this.queue[0] = head.subarray(part.length);
    }
    this.queuedBytes -= filled;
    this.outArmed = 0;
    this.endpointReadDone(this.cdc.dataOut, packet);
    if (this.queuedBytes < MAX_QUEUED_BYTES / 2) this.drained?.();
  }

  /** Hold back what the board prints, or let it go on; held output makes the firmware wait. */
  pause(paused) {
    this.paused = paused;
    if (!paused && this.held) {
      const offset = this.held;
      this.held = 0;
      this.DPRAMUpdated(offset, this.rp2040.usbDPRAMView.getUint32(offset, true));
    }
  }

  /** The library calls this at every write of the firmware to the USB memory. */
  DPRAMUpdated(offset, value) {
    if (offset < BUFFER_CONTROLS || offset > BUFFER_CONTROLS_END) return;
    if (!((value | (value >>> 16)) & AVAILABLE)) return;
    const endpoint = (offset - BUFFER_CONTROLS) >> 3;
    if (offset & 4) this.prepareOut(endpoint, offset, value);
    else if (this.paused && endpoint === this.cdc?.dataIn) this.held = offset;
    else this.takeIn(endpoint, offset, value);
  }

  takeIn(endpoint, offset, value) {
    const start = this.getEndpointBufferOffset(endpoint, false);
    const packets = [];
    let left = value;
    for (const half of [0, 1]) {
      const control = value >>> (16 * half);
      if (control & AVAILABLE) {
        const from = start + half * PACKET_BYTES;
        packets.push(this.rp2040.usbDPRAM.slice(from, from + (control & LENGTH)));
        left &= ~((AVAILABLE | FULL) << (16 * half));
      }
    }
    this.rp2040.usbDPRAMView.setUint32(offset, left, true);
    this.indicateBufferReady(endpoint, false);
    for (const packet of packets) {
      if (endpoint === 0) this.controlIn(packet);
      else if (endpoint === this.cdc?.dataIn && packet.length) this.onData(packet);
    }
  }

  prepareOut(endpoint, offset, value) {
    this.rp2040.usbDPRAMView.setUint32(offset, value & ~AVAILABLE, true);
    if (endpoint === 0 && this.statusDue) {
      this.statusDue = false;
      this.endpointReadDone(0, new Uint8Array(0));
      this.finishRequest();
    } else if (endpoint !== 0) {
      if (this.cdc && endpoint !== this.cdc.dataOut) return;
      this.outArmed = value & LENGTH;
      this.feed();
    }
  }
}
