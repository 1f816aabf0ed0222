// The levels on the board's pins, with what rp2040js leaves out: pulls, and reading an output back.

import { GPIOPinState } from "./chip.mjs";

/** The level on a pin: what the board drives, else the wire from outside, else its pull. */
export function pinLevel(chip, pin, wires) {
  const state = chip.gpio[pin].value;
  if (state === GPIOPinState.High) return true;
  if (state === GPIOPinState.Low) return false;
  return wires.get(pin) ?? state === GPIOPinState.InputPullUp;
}

/** What the firmware reads in SIO's GPIO_IN: the level of every pin whose input is enabled. */
export function pinInputs(chip, wires) {
  let inputs = 0;
  for (let pin = 0; pin < chip.gpio.length; pin += 1) {
    if (chip.gpio[pin].inputEnable && pinLevel(chip, pin, wires)) inputs |= 1 << pin;
  }
  return inputs;
}

const MAX_KEPT = 500; // an answer with all of them stays below what a control client reads

/** The last changes of all pins, numbered: who looks now and then misses none, or knows it. */
export class PinChanges {
  constructor() {
    this.kept = [];
    this.count = 0;
    this.levels = new Map();
  }

  /** Watch the pins of a chip that is about to run; before, all of them were inputs. */
  follow(chip, wires) {
    for (const [pin, gpio] of chip.gpio.entries()) {
      this.look(chip, pin, wires);
      gpio.addListener(() => this.look(chip, pin, wires));
    }
  }

  /** Note the level of a pin if it is another one than before. */
  look(chip, pin, wires) {
    const level = pinLevel(chip, pin, wires);
    if ((this.levels.get(pin) ?? false) === level) return;
    this.levels.set(pin, level);
    this.kept.push([pin, level]);
    if (this.kept.length > MAX_KEPT) this.kept.shift();
    this.count += 1;
  }

  /** The changes after the first `count`, how many of them are no longer kept, and how many all. */
  since(count) {
    if (!Number.isInteger(count) || count < 0) {
      throw new Error("since must be a number, 0 or the count of an earlier answer");
    }
    const firstKept = this.count - this.kept.length;
    return {
      changes: this.kept.slice(Math.max(count - firstKept, 0)),
      lost: Math.max(firstKept - count, 0),
      count: this.count,
    };
  }
}
