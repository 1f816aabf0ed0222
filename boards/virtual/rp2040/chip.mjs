// The parts of rp2040js, loaded from the folder that RP2040JS names.
//
// The package lives in the user's cache and not beside this file, so a bare import would not
// find it; its modules are imported by their path, most of them are not in its public index.

import { pathToFileURL } from "node:url";

const root = process.env.RP2040JS;
if (!root) {
  throw new Error("RP2040JS must name the installed folder of the npm package rp2040js");
}

const load = (name) => import(pathToFileURL(`${root}/dist/esm/${name}.js`).href);

export const { RP2040 } = await load("rp2040");
export const { BasePeripheral } = await load("peripherals/peripheral");
export const { RPUSBController } = await load("peripherals/usb");
export const { RPWatchdog } = await load("peripherals/watchdog");
export const { RPReset } = await load("peripherals/reset");
export const { RPPSM } = await load("peripherals/psm");
export const { RPSIO } = await load("sio");
export const { GPIOPinState } = await load("gpio-pin");
export const { IRQ } = await load("irq");
