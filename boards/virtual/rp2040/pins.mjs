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
