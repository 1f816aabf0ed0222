// What rp2040js lacks in SIO: true pin inputs, the FIFO between the two cores, and the answer of a
// core 1 just released.
//
// One core is emulated. `_thread.start_new_thread` therefore waits for ever, without using the
// CPU, until the board is reset; the log says so.

import { RPPSM, RPSIO } from "./chip.mjs";
import { log } from "./log.mjs";
import { pinInputs } from "./pins.mjs";

const GPIO_IN = 0x04, FIFO_ST = 0x50, FIFO_WR = 0x54, FIFO_RD = 0x58;
const VALID = 1 << 0, READY = 1 << 1;
const FRCE_OFF = 0x04;
const PROC1 = 1 << 16;

export class Sio extends RPSIO {
  /** @param wires levels that pins get from outside, a Map by pin number */
  constructor(rp2040, wires) {
    super(rp2040);
    this.wires = wires;
    this.fifo = [];
  }

  readUint32(offset) {
    if (offset === GPIO_IN) return pinInputs(this.rp2040, this.wires);
    if (offset === FIFO_ST) return READY | (this.fifo.length ? VALID : 0);
    if (offset === FIFO_RD) return this.fifo.shift() ?? 0;
    return super.readUint32(offset);
  }

  writeUint32(offset, value) {
    if (offset === FIFO_WR) {
      log("core 1 is not emulated: _thread cannot start a thread on this board");
    } else if (offset !== FIFO_ST) {
      super.writeUint32(offset, value);
    }
  }
}

/** The power controller; releasing core 1 makes its ROM send one 0, which firmware waits for. */
export class PowerControl extends RPPSM {
  constructor(rp2040, sio) {
    super(rp2040, "PSM_BASE");
    this.sio = sio;
  }

  writeUint32(offset, value) {
    const wasOff = offset === FRCE_OFF && (this.frceOff & PROC1) !== 0;
    super.writeUint32(offset, value);
    if (wasOff && !(this.frceOff & PROC1)) {
      this.sio.fifo = [0];
      this.rp2040.core.eventRegistered = true; // the SEV that goes with it
    }
  }
}
