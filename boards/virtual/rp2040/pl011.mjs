// A PL011 UART paced by virtual time at the programmed baud rate (RP2040 datasheet 4.2).
//
// rp2040js' own UART raises the transmit interrupt again whenever it is cleared, which hangs
// MicroPython at its first machine.UART. Not modelled: DMA pacing, break, parity and framing
// errors, and overruns: a sender waits while the receive FIFO is full, as if RTS/CTS were wired.
// Bytes that come while the firmware has the receiver off are lost, as on a real line.

import { BasePeripheral, IRQ } from "./chip.mjs";

const DR = 0x00, RSR = 0x04, FR = 0x18, IBRD = 0x24, FBRD = 0x28, LCR_H = 0x2c, CR = 0x30;
const IFLS = 0x34, IMSC = 0x38, RIS = 0x3c, MIS = 0x40, ICR = 0x44, DMACR = 0x48, ID = 0xfe0;
const ID_BYTES = [0x11, 0x10, 0x34, 0x00, 0x0d, 0xf0, 0x05, 0xb1];

const FR_TXFE = 1 << 7, FR_RXFF = 1 << 6, FR_TXFF = 1 << 5, FR_RXFE = 1 << 4, FR_BUSY = 1 << 3;
const FR_CTS = 1 << 0;
const LCR_FEN = 1 << 4, LCR_STP2 = 1 << 3, LCR_PEN = 1 << 1;
const CR_RXE = 1 << 9, CR_TXE = 1 << 8, CR_UARTEN = 1 << 0;
const INT_RT = 1 << 6, INT_TX = 1 << 5, INT_RX = 1 << 4;

const FIFO_DEPTH = 32;
const LEVELS = [4, 8, 16, 24, 28]; // of 32: 1/8 1/4 1/2 3/4 7/8
const RECEIVE_TIMEOUT_BITS = 32;

export class Pl011 extends BasePeripheral {
  /**
   * @param rp2040 the chip
   * @param index 0 or 1
   * @param line the outside: `transmit(byte)` takes what the board sends; `receive()` returns the
   *   next byte for the board, or -1 when there is none for now (then call `lineReady` later);
   *   `discard()` throws away what is waiting
   */
  constructor(rp2040, index, line) {
    super(rp2040, `UART${index}`);
    this.irq = index ? IRQ.UART1 : IRQ.UART0;
    this.line = line;
    this.rxAlarm = rp2040.clock.createAlarm(() => this.receiveOne());
    this.rxTimeout = rp2040.clock.createAlarm(() => this.raise(INT_RT));
    this.txAlarm = rp2040.clock.createAlarm(() => this.shiftedOut());
    this.reset();
  }

  /** What the reset controller does to it; its registers are as after power-on. */
  reset() {
    this.ibrd = this.fbrd = this.lcr = this.imsc = this.ris = this.dmacr = 0;
    this.cr = CR_RXE | CR_TXE;
    this.ifls = 0x12;
    this.rx = [];
    this.tx = [];
    this.shifting = -1; // the byte in the transmit shift register
    for (const alarm of [this.rxAlarm, this.rxTimeout, this.txAlarm]) alarm.cancel();
    this.updateInterrupt();
    this.line.discard();
  }

  /** rp2040js calls this when clk_peri changes; the bit time is computed afresh per byte. */
  clkPeriChanged() {}

  get bitNanos() {
    const divisor = this.ibrd + this.fbrd / 64 || 1;
    return (16 * divisor * 1e9) / this.rp2040.clkPeri;
  }

  get byteNanos() {
    const data = 5 + ((this.lcr >>> 5) & 3);
    const bits = 1 + data + (this.lcr & LCR_PEN ? 1 : 0) + (this.lcr & LCR_STP2 ? 2 : 1);
    return bits * this.bitNanos;
  }

  get depth() {
    return this.lcr & LCR_FEN ? FIFO_DEPTH : 1;
  }

  enabled(direction) {
    return (this.cr & (CR_UARTEN | direction)) === (CR_UARTEN | direction);
  }

  /** Bytes may be waiting on the line: start receiving if nothing is on its way. */
  lineReady() {
    if (!this.enabled(CR_RXE)) this.line.discard();
    if (!this.rxAlarm.scheduled && this.enabled(CR_RXE) && this.rx.length < this.depth) {
      this.rxAlarm.schedule(this.byteNanos);
    }
  }

  receiveOne() {
    const byte = this.line.receive();
    if (byte < 0) return;
    this.rx.push(byte);
    if (this.rx.length >= this.rxLevel) this.raise(INT_RX);
    this.rxTimeout.schedule(RECEIVE_TIMEOUT_BITS * this.bitNanos);
    this.lineReady();
  }

  get rxLevel() {
    return this.depth === 1 ? 1 : LEVELS[Math.min((this.ifls >>> 3) & 7, 4)];
  }

  get txLevel() {
    return this.depth === 1 ? 0 : LEVELS[Math.min(this.ifls & 7, 4)];
  }

  startShifting() {
    if (this.shifting >= 0 || !this.tx.length || !this.enabled(CR_TXE)) return;
    this.shifting = this.tx.shift();
    this.txAlarm.schedule(this.byteNanos);
    // The interrupt marks the passage through the level, it is not held while below it.
    if (this.tx.length === this.txLevel) this.raise(INT_TX);
  }

  shiftedOut() {
    this.line.transmit(this.shifting);
    this.shifting = -1;
    this.startShifting();
  }

  raise(bits) {
    this.ris |= bits;
    this.updateInterrupt();
  }

  updateInterrupt() {
    this.rp2040.setInterrupt(this.irq, (this.ris & this.imsc) !== 0);
  }

  get flags() {
    return (
      (this.tx.length ? 0 : FR_TXFE) |
      (this.tx.length >= this.depth ? FR_TXFF : 0) |
      (this.rx.length ? 0 : FR_RXFE) |
      (this.rx.length >= this.depth ? FR_RXFF : 0) |
      (this.shifting >= 0 || this.tx.length ? FR_BUSY : 0) |
      FR_CTS
    );
  }

  read() {
    const byte = this.rx.length ? this.rx.shift() : 0;
    if (this.rx.length < this.rxLevel) this.ris &= ~INT_RX;
    if (!this.rx.length) {
      this.ris &= ~INT_RT;
      this.rxTimeout.cancel();
    }
    this.updateInterrupt();
    this.lineReady();
    return byte;
  }

  readUint32(offset) {
    switch (offset) {
      case DR: return this.read();
      case RSR: return 0;
      case FR: return this.flags;
      case IBRD: return this.ibrd;
      case FBRD: return this.fbrd;
      case LCR_H: return this.lcr;
      case CR: return this.cr;
      case IFLS: return this.ifls;
      case IMSC: return this.imsc;
      case RIS: return this.ris;
      case MIS: return this.ris & this.imsc;
      case ICR: return 0;
      case DMACR: return this.dmacr;
    }
    if (offset >= ID) return ID_BYTES[(offset - ID) >> 2];
    return super.readUint32(offset);
  }

  writeUint32(offset, value) {
    switch (offset) {
      case DR:
        if (this.tx.length < this.depth) this.tx.push(value & 0xff);
        if (this.tx.length > this.txLevel) this.ris &= ~INT_TX;
        this.startShifting();
        this.updateInterrupt();
        break;
      case RSR: break;
      case IBRD: this.ibrd = value & 0xffff; break;
      case FBRD: this.fbrd = value & 0x3f; break;
      case LCR_H:
        if (!(value & LCR_FEN)) this.rx.length = this.tx.length = 0;
        this.lcr = value & 0xff;
        break;
      case CR:
        this.cr = value & 0xffff;
        this.startShifting();
        if (this.enabled(CR_RXE)) this.lineReady();
        break;
      case IFLS: this.ifls = value & 0x3f; break;
      case IMSC: this.imsc = value & 0x7ff; this.updateInterrupt(); break;
      case ICR: this.ris &= ~this.rawWriteValue; this.updateInterrupt(); break;
      case DMACR: this.dmacr = value & 7; break;
      default: super.writeUint32(offset, value);
    }
  }
}
