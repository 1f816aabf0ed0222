// The ring oscillator: only its random bit matters, MicroPython seeds os.urandom with it.

import { randomBytes } from "node:crypto";

import { BasePeripheral } from "./chip.mjs";

const RANDOMBIT = 0x1c;
const OTHERS = 0xffffffff; // stable, enabled

export class RingOscillator extends BasePeripheral {
  constructor(rp2040) {
    super(rp2040, "ROSC_BASE");
    this.pool = [];
  }

  readUint32(offset) {
    if (offset !== RANDOMBIT) return OTHERS;
    if (!this.pool.length) this.pool = [...randomBytes(256)];
    return this.pool.pop() & 1;
  }

  writeUint32() {}
}
