// Virtual time: nanoseconds that pass only as the core executes or as the run loop skips idle time.
//
// Stands in for rp2040js' SimulationClock. It is not ticked per instruction: time is computed from
// the core's cycle counter when somebody asks, and the core runs up to the next alarm in one go.

// Cycles times a period need not give back exactly the nanoseconds they were computed from.
const ROUNDING_NANOS = 0.5;

class Alarm {
  constructor(clock, callback) {
    this.clock = clock;
    this.callback = callback;
    this.nanos = 0;
    this.next = null;
    this.scheduled = false;
  }

  /** Fire `delayNanos` from now; an earlier schedule is replaced. */
  schedule(delayNanos) {
    this.cancel();
    this.nanos = this.clock.nanos + delayNanos;
    this.clock.insert(this);
  }

  cancel() {
    if (this.scheduled) this.clock.remove(this);
  }
}

export class VirtualClock {
  constructor() {
    this.core = null; // set once the chip exists: {cycles, limit}
    this.nanosPerCycle = 8;
    this.anchorNanos = 0;
    this.anchorCycles = 0;
    this.first = null;
  }

  /** Take the time from `core.cycles`, at `hertz`; called again when the firmware changes it. */
  follow(core, hertz) {
    const now = this.core ? this.nanos : 0;
    this.core = core;
    this.nanosPerCycle = 1e9 / hertz;
    this.jump(now);
  }

  get nanos() {
    if (!this.core) return 0;
    return this.anchorNanos + (this.core.cycles - this.anchorCycles) * this.nanosPerCycle;
  }

  get micros() {
    return this.nanos / 1000;
  }

  createAlarm(callback) {
    return new Alarm(this, callback);
  }

  /** Nanoseconds of the next alarm, Infinity when there is none. */
  get nextAlarmNanos() {
    return this.first ? this.first.nanos : Infinity;
  }

  /** The value of `core.cycles` at which `nanos` is reached. */
  cyclesAt(nanos) {
    return this.anchorCycles + Math.ceil((nanos - this.anchorNanos) / this.nanosPerCycle);
  }

  /** Set the time to `nanos` without executing anything. */
  jump(nanos) {
    this.anchorNanos = nanos;
    this.anchorCycles = this.core.cycles;
  }

  /** Fire every alarm that is due, in order. */
  fireDue() {
    while (this.first && this.first.nanos <= this.nanos + ROUNDING_NANOS) {
      const alarm = this.first;
      this.remove(alarm);
      alarm.callback();
    }
  }

  insert(alarm) {
    let after = null;
    let before = this.first;
    while (before && before.nanos <= alarm.nanos) {
      after = before;
      before = before.next;
    }
    alarm.next = before;
    alarm.scheduled = true;
    if (after) {
      after.next = alarm;
    } else {
      this.first = alarm;
      // The core is in the middle of its run: it must not run past this alarm.
      if (this.core) this.core.limit = Math.min(this.core.limit, this.cyclesAt(alarm.nanos));
    }
  }

  remove(alarm) {
    let after = null;
    let item = this.first;
    while (item && item !== alarm) {
      after = item;
      item = item.next;
    }
    if (after) after.next = alarm.next;
    else this.first = alarm.next;
    alarm.next = null;
    alarm.scheduled = false;
  }
}
