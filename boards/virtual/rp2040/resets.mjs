// The reset controller: rp2040js' registers, and the reset of the UARTs, which it leaves out.

import { RPReset } from "./chip.mjs";

const RESET = 0x0;
const UART_BITS = [1 << 22, 1 << 23];

export class Resets extends RPReset {
  constructor(rp2040, uarts) {
    super(rp2040, "RESETS_BASE");
    this.uarts = uarts;
  }

  writeUint32(offset, value) {
    const before = this.reset;
    super.writeUint32(offset, value);
    if (offset !== RESET) return;
    const asserted = this.reset & ~before;
    this.uarts.forEach((uart, index) => {
      if (asserted & UART_BITS[index]) uart.reset();
    });
  }
}
