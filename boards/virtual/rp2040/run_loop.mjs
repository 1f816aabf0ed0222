// Paces the chip by the wall clock: virtual time never runs ahead of it, and a sleeping core
// costs nothing. A busy core that is slower than the chip makes virtual time lag; the lag is
// forgiven rather than made up for, so that the board stays responsive.

const SLICE_MS = 1; // then sockets get their turn
const CHUNK_CYCLES = 40_000; // between looks at the wall clock, about 0.3 ms of the chip's time
const MAX_LAG_NANOS = 20e6;
const AHEAD_MS = 1;
const MAX_TIMER_MS = 2 ** 31 - 1;

export class RunLoop {
  constructor() {
    this.core = null;
    this.clock = null;
    this.timer = null;
    this.immediate = null;
  }

  /** Run this chip from now on, instead of the one before. */
  start(core, clock) {
    this.stop();
    this.core = core;
    this.clock = clock;
    this.anchor(performance.now());
    this.wake();
  }

  stop() {
    this.core = null;
    clearTimeout(this.timer);
    clearImmediate(this.immediate);
    this.timer = this.immediate = null;
  }

  anchor(wall) {
    this.wallAnchor = wall;
    this.virtualAnchor = this.clock.nanos;
  }

  wake() {
    if (!this.core || this.immediate) return;
    clearTimeout(this.timer);
    this.timer = null;
    this.immediate = setImmediate(() => {
      this.immediate = null;
      this.turn();
    });
  }

  /** Let something from outside happen to the chip, at the present of its virtual time. */
  input(happen) {
    if (!this.core) return;
    if (this.core.waiting) {
      const present = Math.min(this.target(performance.now()), this.clock.nextAlarmNanos);
      if (present > this.clock.nanos) this.clock.jump(present);
    }
    happen();
    this.wake();
  }

  target(wall) {
    return this.virtualAnchor + (wall - this.wallAnchor) * 1e6;
  }

  turn() {
    const { core, clock } = this;
    let wall = performance.now();
    const sliceEnd = wall + SLICE_MS;
    if (!core.waiting && this.target(wall) - clock.nanos > MAX_LAG_NANOS) this.anchor(wall);
    while (this.core === core) {
      const target = this.target(wall);
      clock.fireDue();
      if (this.core !== core) return;
      if (core.waiting) {
        const next = clock.nextAlarmNanos;
        if (next > target) {
          if (target > clock.nanos) clock.jump(target);
          return this.sleep((next - target) / 1e6);
        }
        if (next > clock.nanos) clock.jump(next);
        continue;
      }
      if (clock.nanos >= target) return this.sleep(AHEAD_MS);
      core.limit = Math.min(
        clock.cyclesAt(Math.min(target, clock.nextAlarmNanos)),
        core.cycles + CHUNK_CYCLES,
      );
      core.run();
      wall = performance.now();
      if (wall >= sliceEnd) return this.wake();
    }
  }

  sleep(milliseconds) {
    if (milliseconds > MAX_TIMER_MS) return;
    this.timer = setTimeout(() => {
      this.timer = null;
      this.turn();
    }, milliseconds);
  }
}
