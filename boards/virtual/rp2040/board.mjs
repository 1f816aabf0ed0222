// One RP2040 board from power-on to reset: the chip, and what this package puts in its place.

import { RP2040 } from "./chip.mjs";
import { VirtualClock } from "./clock.mjs";
import { FLASH_BYTES, FlashPins, FlashSerial } from "./flash.mjs";
import { chipLogger } from "./log.mjs";
import { Pl011 } from "./pl011.mjs";
import { Resets } from "./resets.mjs";
import { installRom } from "./rom.mjs";
import { RingOscillator } from "./rosc.mjs";
import { PowerControl, Sio } from "./sio.mjs";
import { makeRunnable } from "./thumb.mjs";
import { UsbConsole } from "./usb_console.mjs";
import { Watchdog } from "./watchdog.mjs";

const XIP_BASE = 0x10000000;
const VECTORS = XIP_BASE + 0x100; // behind boot2
const SSI = 0x18000, RESETS = 0x4000c;
const PSM = 0x40010, IO_QSPI = 0x40018, UART0 = 0x40034, UART1 = 0x40038;
const WATCHDOG = 0x40058, ROSC = 0x40060, USB = 0x50110;
const FLASH_SELECT_PIN = 1;

/**
 * Build a chip with its firmware about to run its first instruction.
 *
 * @param options.flash the FlashImage
 * @param options.uid eight bytes
 * @param options.kept what survived a watchdog reset, or null
 * @param options.lines the outside of UART0 and UART1, see Pl011
 * @param options.wires levels that pins get from outside, a Map by pin number
 * @param options.onConsole bytes printed on the console
 * @param options.onConnected the console is there
 * @param options.onReset the watchdog has reset the chip; gets what to keep
 * @param options.onBootsel the firmware asked for BOOTSEL
 */
export function powerOn(options) {
  const clock = new VirtualClock();
  const chip = new RP2040(clock);
  chip.logger = chipLogger;
  chip.flash = new Uint8Array(FLASH_BYTES); // the library's 16 MB are more than a Pico has
  chip.flash16 = new Uint16Array(chip.flash.buffer);
  chip.flashView = new DataView(chip.flash.buffer);
  options.flash.load(chip.flash);

  const serial = new FlashSerial(chip, options.uid);
  chip.sio = new Sio(chip, options.wires);
  chip.uart = options.lines.map((line, index) => new Pl011(chip, index, line));
  chip.usbCtrl = new UsbConsole(chip, options.onConsole, options.onConnected);
  Object.assign(chip.peripherals, {
    [SSI]: serial,
    [RESETS]: new Resets(chip, chip.uart),
    [PSM]: new PowerControl(chip, chip.sio),
    [IO_QSPI]: new FlashPins(chip, serial),
    [UART0]: chip.uart[0],
    [UART1]: chip.uart[1],
    [WATCHDOG]: new Watchdog(chip, options.kept, options.onReset),
    [ROSC]: new RingOscillator(chip),
    [USB]: chip.usbCtrl,
  });
  chip.qspi[FLASH_SELECT_PIN].padValue |= 0x40;
  chip.qspi[FLASH_SELECT_PIN].setInputValue(true); // BOOTSEL is not pressed
  installRom(chip, options.flash, options.onBootsel);

  makeRunnable(chip.core);
  clock.follow(chip.core, chip.clkSys);
  chip.addClockListener((hertz) => clock.follow(chip.core, hertz));
  chip.core.VTOR = VECTORS;
  chip.core.reset();
  return { chip, clock };
}
