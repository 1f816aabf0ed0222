// Random choices that come again with the same seed.

/** A generator of numbers (mulberry32). */
export class Random {
  #state;

  constructor(seed) {
    this.#state = seed >>> 0;
  }

  /** Return a whole number, at least 0 and less than `limit`. */
  below(limit) {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit;
  }

  pick(list) {
    return list[this.below(list.length)];
  }

  bytes(count) {
    return Uint8Array.from({ length: count }, () => this.below(256));
  }
}
