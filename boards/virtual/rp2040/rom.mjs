// The boot ROM, as the functions that firmware calls in it.
//
// No ROM image is shipped or run. Each function is a stub, `bkpt #n; bx lr`, whose work is done
// here; the layout of the tables is that of the RP2040 datasheet 2.8.3. Consequence, to be said
// wherever this board is used: boot2 as first stage, the ROM's code and the rounding of its
// floating-point functions are NOT exercised.

import { DOUBLE_TABLE, FLOAT_TABLE, floatFunctions } from "./rom_float.mjs";
import { log } from "./log.mjs";

const ROM_VERSION = 3;
const MAGIC = (ROM_VERSION << 24) | 0x01754d; // 'M' 'u' 1 version
const STUBS = 0x100;
const FLOATS = 0x800;
const DOUBLES = 0x900;
const BX_LR = 0x4770;
const BKPT = 0xbe00;

const code = (text) => text.charCodeAt(0) | (text.charCodeAt(1) << 8);

/** Functions by their ROM table code; each takes (registers, chip, flash, onBootsel). */
const FUNCTIONS = {
  P3: (r) => { r[0] = countBits(r[0]); },
  R3: (r) => { r[0] = reverseBits(r[0]); },
  L3: (r) => { r[0] = Math.clz32(r[0]); },
  T3: (r) => { r[0] = r[0] ? 31 - Math.clz32(r[0] & -r[0]) : 32; },
  MS: fill,
  S4: fill,
  MC: copy,
  C4: copy,
  IF: () => {}, // connect_internal_flash
  EX: () => {}, // flash_exit_xip
  FC: () => {}, // flash_flush_cache
  CX: () => {}, // flash_enter_cmd_xip
  RE: (r, chip, flash) => flash.erase(r[0], r[1]),
  RP: (r, chip, flash) => flash.program(r[0], r[2], (i) => chip.readUint8((r[1] + i) >>> 0)),
  UB: (r, chip, flash, onBootsel) => onBootsel(),
};

function countBits(value) {
  let count = 0;
  for (let rest = value; rest; rest &= rest - 1) count += 1;
  return count;
}

function reverseBits(value) {
  let out = 0;
  for (let i = 0; i < 32; i += 1) out = (out << 1) | ((value >>> i) & 1);
  return out;
}

function fill(r, chip) {
  const ram = r[0] - 0x20000000;
  if (ram >= 0 && ram + r[2] <= chip.sram.length) chip.sram.fill(r[1] & 0xff, ram, ram + r[2]);
  else for (let i = 0; i < r[2]; i += 1) chip.writeUint8((r[0] + i) >>> 0, r[1] & 0xff);
  chip.core.cycles += r[2] >>> 2;
}

/** A block of plain memory as bytes, or null when it is registers or crosses a border. */
function block(chip, address, length) {
  const ram = address - 0x20000000;
  if (ram >= 0 && ram + length <= chip.sram.length) return chip.sram.subarray(ram, ram + length);
  const flash = address - 0x10000000;
  if (flash >= 0 && flash + length <= chip.flash.length) {
    return chip.flash.subarray(flash, flash + length);
  }
  return null;
}

function copy(r, chip) {
  const target = r[0] - 0x20000000;
  const source = block(chip, r[1], r[2]);
  if (source && target >= 0 && target + r[2] <= chip.sram.length) {
    chip.sram.set(source, target);
  } else {
    for (let i = 0; i < r[2]; i += 1) {
      chip.writeUint8((r[0] + i) >>> 0, chip.readUint8((r[1] + i) >>> 0));
    }
  }
  chip.core.cycles += r[2] >>> 1;
}

/**
 * Write the ROM of `chip` and answer its stubs.
 * @param chip the RP2040
 * @param flash {erase(offset, count), program(offset, count, byteAt)}
 * @param onBootsel called when the firmware asks for BOOTSEL (reset_usb_boot)
 */
export function installRom(chip, flash, onBootsel) {
  const bytes = new DataView(chip.bootrom.buffer);
  const handlers = [];
  const stub = (handler) => {
    const address = STUBS + 4 * handlers.length;
    bytes.setUint16(address, BKPT | handlers.length, true);
    bytes.setUint16(address + 2, BX_LR, true);
    handlers.push(handler);
    return address | 1;
  };

  const addresses = new Map();
  for (const [name, work] of Object.entries(FUNCTIONS)) {
    addresses.set(code(name), stub((r) => work(r, chip, flash, onBootsel)));
  }
  const table = (base, functions) => {
    functions.forEach((work, i) => bytes.setUint32(base + 4 * i, stub(work), true));
    bytes.setUint8(base - 2, functions.length);
    return base;
  };
  const { single, double } = floatFunctions();
  addresses.set(code("SF"), table(FLOATS, FLOAT_TABLE.map((name) => single[name])));
  addresses.set(code("SD"), table(DOUBLES, DOUBLE_TABLE.map((name) => double[name])));

  bytes.setUint32(0x10, MAGIC, true);
  bytes.setUint16(0x14, 0x20, true); // tables of functions and data: only their lookup is used
  bytes.setUint16(0x16, 0x22, true);
  bytes.setUint16(0x18, stub((r) => { r[0] = addresses.get(r[1]) ?? 0; }), true);

  chip.onBreak = (number) => {
    const handler = handlers[number];
    const inRom = chip.core.PC >>> 0 < 0x4000;
    if (handler && inRom) handler(chip.core.registers);
    else log(`breakpoint ${number} at ${(chip.core.PC >>> 0).toString(16)}: ignored`);
  };
}
