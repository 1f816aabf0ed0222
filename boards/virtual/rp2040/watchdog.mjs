// The watchdog: rp2040js' registers, without its alarm that fires for ever once time is up.

import { RPWatchdog } from "./chip.mjs";

const REASON_TIMER = 1;
const REASON_FORCE = 2;

export class Watchdog extends RPWatchdog {
  /**
   * @param rp2040 the chip
   * @param kept what survives a watchdog reset: {reason, scratch}, or null after power-on
   * @param onReset called once with what the next chip must keep
   */
  constructor(rp2040, kept, onReset) {
    super(rp2040, "WATCHDOG_BASE");
    if (kept) {
      this.reason = kept.reason;
      this.scratchData.set(kept.scratch);
    }
    this.onWatchdogTrigger = () => {
      const reason = this.reason === REASON_FORCE ? REASON_FORCE : REASON_TIMER;
      // The library re-arms the alarm at a distance of zero: the clock would never get past it.
      this.alarm.enable = false;
      this.timer.enable = false;
      onReset({ reason, scratch: Uint32Array.from(this.scratchData) });
    };
  }
}
