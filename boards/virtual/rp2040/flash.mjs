// The board's flash: an image file, and the serial commands that reach the flash chip itself.

import { existsSync, openSync, readSync, writeSync, writeFileSync } from "node:fs";

import { BasePeripheral } from "./chip.mjs";

export const FLASH_BYTES = 2 * 1024 * 1024;

/** The image in memory and in its file; every change is in the file before the firmware goes on. */
export class FlashImage {
  constructor(path) {
    if (!existsSync(path)) writeFileSync(path, Buffer.alloc(FLASH_BYTES, 0xff));
    this.file = openSync(path, "r+");
    this.bytes = new Uint8Array(0);
  }

  /** Read the file into `memory`, the chip's flash; what the file does not hold is erased. */
  load(memory) {
    memory.fill(0xff);
    readSync(this.file, memory, 0, FLASH_BYTES, 0);
    this.bytes = memory;
  }

  erase(offset, count) {
    const end = Math.min(offset + count, FLASH_BYTES);
    this.bytes.fill(0xff, offset, end);
    this.save(offset, end);
  }

  /** Program `count` bytes; bits can only be cleared. */
  program(offset, count, byteAt) {
    const end = Math.min(offset + count, FLASH_BYTES);
    for (let i = offset; i < end; i += 1) this.bytes[i] &= byteAt(i - offset);
    this.save(offset, end);
  }

  save(offset, end) {
    if (end > offset) writeSync(this.file, this.bytes, offset, end - offset, offset);
  }
}

const CTRLR0 = 0x00, CTRLR1 = 0x04, SSIENR = 0x08, SER = 0x10, BAUDR = 0x14, SR = 0x28;
const IDR = 0x58, VERSION = 0x5c, DR0 = 0x60, RX_SAMPLE_DLY = 0xf0, SPI_CTRLR0 = 0xf4;
const SR_TFNF = 1 << 1, SR_TFE = 1 << 2, SR_RFNE = 1 << 3;

const STATUS_1 = 0x05, STATUS_2 = 0x35, UNIQUE_ID = 0x4b, JEDEC_ID = 0x9f;
const QUAD_ENABLED = 0x02;
const JEDEC = [0xef, 0x40, 0x15]; // a W25Q16, 2 MB
const UNIQUE_ID_DUMMY = 4;

/** The serial controller in front of the flash (RP2040 datasheet 4.10), one byte at a time. */
export class FlashSerial extends BasePeripheral {
  /** @param uid the eight bytes that the flash chip gives as its unique id */
  constructor(rp2040, uid) {
    super(rp2040, "SSI");
    this.uid = uid;
    this.registers = new Map();
    this.deselect();
  }

  /** The chip select rose: what follows is a new command. */
  deselect() {
    this.command = -1;
    this.position = 0;
    this.answers = [];
  }

  exchange(byte) {
    if (this.command < 0) {
      this.command = byte;
      this.position = 0;
      return 0;
    }
    const index = this.position;
    this.position += 1;
    switch (this.command) {
      case STATUS_1: return 0;
      case STATUS_2: return QUAD_ENABLED;
      case JEDEC_ID: return JEDEC[index] ?? 0;
      case UNIQUE_ID: return this.uid[index - UNIQUE_ID_DUMMY] ?? 0;
    }
    return 0;
  }

  readUint32(offset) {
    switch (offset) {
      case SR: return SR_TFE | SR_TFNF | (this.answers.length ? SR_RFNE : 0);
      case IDR: return 0x51535049;
      case VERSION: return 0x3430312a;
      case DR0: return this.answers.length ? this.answers.shift() : 0;
    }
    return this.registers.get(offset) ?? 0;
  }

  writeUint32(offset, value) {
    if (offset === DR0) {
      this.answers.push(this.exchange(value & 0xff));
    } else if (offset === SSIENR) {
      this.deselect(); // disabling or enabling the controller releases the chip select
      this.registers.set(offset, value);
    } else if (
      [CTRLR0, CTRLR1, SER, BAUDR, RX_SAMPLE_DLY, SPI_CTRLR0].includes(offset)
    ) {
      this.registers.set(offset, value);
    }
  }
}

const SS_CTRL = 0x0c;
const OUTOVER_MASK = 3 << 8;
const OUTOVER_HIGH = 3 << 8;

/** The pins of the flash: firmware forces the chip select by hand around its commands. */
export class FlashPins extends BasePeripheral {
  constructor(rp2040, serial) {
    super(rp2040, "IO_QSPI_BASE");
    this.serial = serial;
    this.registers = new Map();
  }

  readUint32(offset) {
    return this.registers.get(offset) ?? 0;
  }

  writeUint32(offset, value) {
    this.registers.set(offset, value);
    if (offset === SS_CTRL && (value & OUTOVER_MASK) === OUTOVER_HIGH) this.serial.deselect();
  }
}
