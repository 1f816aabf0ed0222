// The ARMv6-M instructions that firmware spends its time on, executed many at a time.
//
// rp2040js decodes each instruction by a chain of comparisons and reads the bus through range
// checks. Here one switch decodes, flags and program counter live in local variables, and RAM and
// flash are typed arrays. Everything rare (exceptions, special registers, sleeping) and every
// peripheral access is left to rp2040js' own core, so there is one model of those.
// Cycle counts are the library's: one per instruction, plus its bus and branch costs.
//
// Why so long: it is one function, because locals that never leave it are what makes it fast.

const FLASH = 0x10000000, RAM = 0x20000000, ROM_BYTES = 0x4000;
const SP = 13, LR = 14, PC = 15;
const NONE = 0, LOAD32 = 1, LOAD16 = 2, LOAD8 = 3, LOAD_S8 = 4, LOAD_S16 = 5;
const STORE32 = 6, STORE16 = 7, STORE8 = 8;
const MEMORY_REGISTER = [STORE32, STORE16, STORE8, LOAD_S8, LOAD32, LOAD16, LOAD8, LOAD_S16];

/** Extra cycles of one access, as rp2040js counts them. */
function busCycles(address, write) {
  if (address >>> 28 === 0xd) return 0; // SIO
  if (address >>> 28 === 0x4) return write ? 4 : 3; // APB
  return 1;
}

/**
 * Give `core` the fields `limit` (in cycles) and `run()`, which executes until `core.cycles`
 * reaches the limit or the core sleeps. Anything called meanwhile may lower the limit.
 */
export function makeRunnable(core) {
  const chip = core.rp2040;
  const R = new Int32Array(core.registers.buffer);
  const ram8 = chip.sram, ram16 = new Uint16Array(ram8.buffer), ram32 = new Int32Array(ram8.buffer);
  const flash8 = chip.flash, flash16 = chip.flash16, flash32 = new Int32Array(flash8.buffer);
  const rom16 = new Uint16Array(chip.bootrom.buffer);
  const RAM_BYTES = ram8.length, FLASH_BYTES = flash8.length;
  core.limit = 0;

  core.run = () => {
    // nz holds the last result: negative and zero are read off it. c and v are 0 or 1.
    let nz = 0, c = 0, v = 0, pc = 0;
    let end = 0, left = 0; // core.cycles is end - left while in the loop
    let code = flash16, codeBase = FLASH, codeBytes = FLASH_BYTES;

    while (core.cycles < core.limit && !core.waiting) {
      if (core.interruptsUpdated && core.checkForInterrupts()) core.waiting = false;
      nz = core.Z ? 0 : core.N ? -1 : 1;
      c = core.C ? 1 : 0;
      v = core.V ? 1 : 0;
      pc = R[PC] & ~1;
      end = core.limit;
      left = end - core.cycles;
      let rare = false;

      while (left > 0) {
        let at = (pc - codeBase) >>> 0;
        if (at >= codeBytes) {
          if ((pc - FLASH) >>> 0 < FLASH_BYTES) {
            code = flash16; codeBase = FLASH; codeBytes = FLASH_BYTES;
          } else if ((pc - RAM) >>> 0 < RAM_BYTES) {
            code = ram16; codeBase = RAM; codeBytes = RAM_BYTES;
          } else if (pc >>> 0 < ROM_BYTES) {
            code = rom16; codeBase = 0; codeBytes = ROM_BYTES;
          } else {
            rare = true;
            break;
          }
          at = (pc - codeBase) >>> 0;
        }
        const op = code[at >>> 1];
        pc = (pc + 2) | 0;
        left -= 1;
        let access = NONE, address = 0, t = op & 7;

        switch (op >>> 9) {
          case 0: case 1: case 2: case 3: { // LSLS immediate
            const shift = (op >>> 6) & 31, x = R[(op >>> 3) & 7];
            if (shift) c = (x >>> (32 - shift)) & 1;
            nz = R[t] = x << shift;
            break;
          }
          case 4: case 5: case 6: case 7: { // LSRS immediate
            const shift = (op >>> 6) & 31, x = R[(op >>> 3) & 7];
            c = (x >>> (shift ? shift - 1 : 31)) & 1;
            nz = R[t] = shift ? x >>> shift : 0;
            nz |= 0;
            break;
          }
          case 8: case 9: case 10: case 11: { // ASRS immediate
            const shift = (op >>> 6) & 31, x = R[(op >>> 3) & 7];
            c = (x >>> (shift ? shift - 1 : 31)) & 1;
            nz = R[t] = x >> (shift || 31);
            break;
          }
          case 12: case 14: { // ADDS register, immediate 3
            const a = R[(op >>> 3) & 7], b = op & 0x400 ? (op >>> 6) & 7 : R[(op >>> 6) & 7];
            nz = R[t] = (a + b) | 0;
            c = nz >>> 0 < a >>> 0 ? 1 : 0;
            v = ((a ^ nz) & (b ^ nz)) >>> 31;
            break;
          }
          case 13: case 15: { // SUBS register, immediate 3
            const a = R[(op >>> 3) & 7], b = op & 0x400 ? (op >>> 6) & 7 : R[(op >>> 6) & 7];
            nz = R[t] = (a - b) | 0;
            c = a >>> 0 >= b >>> 0 ? 1 : 0;
            v = ((a ^ b) & (a ^ nz)) >>> 31;
            break;
          }
          case 16: case 17: case 18: case 19: // MOVS immediate
            nz = R[(op >>> 8) & 7] = op & 0xff;
            break;
          case 20: case 21: case 22: case 23: { // CMP immediate
            const a = R[(op >>> 8) & 7], b = op & 0xff;
            nz = (a - b) | 0;
            c = a >>> 0 >= b ? 1 : 0;
            v = (a & ~nz) >>> 31;
            break;
          }
          case 24: case 25: case 26: case 27: { // ADDS immediate 8
            t = (op >>> 8) & 7;
            const a = R[t];
            nz = R[t] = (a + (op & 0xff)) | 0;
            c = nz >>> 0 < a >>> 0 ? 1 : 0;
            v = (~a & nz) >>> 31;
            break;
          }
          case 28: case 29: case 30: case 31: { // SUBS immediate 8
            t = (op >>> 8) & 7;
            const a = R[t], b = op & 0xff;
            nz = R[t] = (a - b) | 0;
            c = a >>> 0 >= b ? 1 : 0;
            v = (a & ~nz) >>> 31;
            break;
          }
          case 32: case 33: { // data processing, registers
            const m = R[(op >>> 3) & 7], a = R[t];
            switch ((op >>> 6) & 15) {
              case 0: nz = R[t] = a & m; break;
              case 1: nz = R[t] = a ^ m; break;
              case 2: { // LSLS
                const shift = m & 0xff;
                if (shift) c = shift > 32 ? 0 : (a >>> (32 - shift)) & 1;
                nz = R[t] = shift > 31 ? 0 : a << shift;
                break;
              }
              case 3: { // LSRS
                const shift = m & 0xff;
                if (shift) c = shift > 32 ? 0 : (a >>> (shift - 1)) & 1;
                nz = R[t] = shift > 31 ? 0 : a >>> shift;
                nz |= 0;
                break;
              }
              case 4: { // ASRS
                const shift = Math.min(m & 0xff, 32);
                if (shift) c = (a >>> (shift - 1)) & 1;
                nz = R[t] = a >> Math.min(shift, 31);
                break;
              }
              case 5: { // ADCS
                nz = R[t] = (a + m + c) | 0;
                c = (c ? nz >>> 0 <= a >>> 0 : nz >>> 0 < a >>> 0) ? 1 : 0;
                v = ((a ^ nz) & (m ^ nz)) >>> 31;
                break;
              }
              case 6: { // SBCS
                nz = R[t] = (a - m - 1 + c) | 0;
                c = (c ? a >>> 0 >= m >>> 0 : a >>> 0 > m >>> 0) ? 1 : 0;
                v = ((a ^ m) & (a ^ nz)) >>> 31;
                break;
              }
              case 7: { // RORS
                const shift = m & 31;
                nz = R[t] = shift ? (a >>> shift) | (a << (32 - shift)) : a;
                nz |= 0;
                if (m & 0xff) c = nz >>> 31;
                break;
              }
              case 8: nz = a & m; break; // TST
              case 9: // RSBS
                nz = R[t] = (0 - m) | 0;
                c = m === 0 ? 1 : 0;
                v = (m & nz) >>> 31;
                break;
              case 10: { // CMP
                nz = (a - m) | 0;
                c = a >>> 0 >= m >>> 0 ? 1 : 0;
                v = ((a ^ m) & (a ^ nz)) >>> 31;
                break;
              }
              case 11: { // CMN
                nz = (a + m) | 0;
                c = nz >>> 0 < a >>> 0 ? 1 : 0;
                v = ((a ^ nz) & (m ^ nz)) >>> 31;
                break;
              }
              case 12: nz = R[t] = a | m; break;
              case 13: nz = R[t] = Math.imul(a, m); break;
              case 14: nz = R[t] = a & ~m; break;
              default: nz = R[t] = ~m;
            }
            break;
          }
          case 34: case 35: { // high registers: ADD, CMP, MOV, BX, BLX
            const n = (op >>> 3) & 15, d = ((op >>> 4) & 8) | t;
            const m = n === PC ? (pc + 2) | 0 : R[n];
            const kind = (op >>> 8) & 3;
            if (kind === 1) { // CMP
              const a = R[d];
              nz = (a - m) | 0;
              c = a >>> 0 >= m >>> 0 ? 1 : 0;
              v = ((a ^ m) & (a ^ nz)) >>> 31;
            } else if (kind === 3) { // BX, BLX
              if (op & 0x80) R[LR] = pc | 1;
              else if (m >>> 28 === 15) { pc = (pc - 2) | 0; left += 1; rare = true; }
              if (!rare) { pc = m & ~1; left -= 1; }
            } else {
              const value = kind === 2 ? m : ((d === PC ? (pc + 2) | 0 : R[d]) + m) | 0;
              if (d === PC) { pc = value & ~1; left -= 1; }
              else R[d] = d === SP ? value & ~3 : value;
            }
            break;
          }
          case 36: case 37: case 38: case 39: // LDR literal
            access = LOAD32;
            address = ((pc + 2) & ~3) + ((op & 0xff) << 2);
            t = (op >>> 8) & 7;
            break;
          case 40: case 41: case 42: case 43: case 44: case 45: case 46: case 47: // register offset
            access = MEMORY_REGISTER[(op >>> 9) & 7];
            address = (R[(op >>> 3) & 7] + R[(op >>> 6) & 7]) | 0;
            break;
          case 48: case 49: case 50: case 51: // STR immediate
            access = STORE32;
            address = (R[(op >>> 3) & 7] + ((op >>> 4) & 0x7c)) | 0;
            break;
          case 52: case 53: case 54: case 55: // LDR immediate
            access = LOAD32;
            address = (R[(op >>> 3) & 7] + ((op >>> 4) & 0x7c)) | 0;
            break;
          case 56: case 57: case 58: case 59: // STRB immediate
            access = STORE8;
            address = (R[(op >>> 3) & 7] + ((op >>> 6) & 31)) | 0;
            break;
          case 60: case 61: case 62: case 63: // LDRB immediate
            access = LOAD8;
            address = (R[(op >>> 3) & 7] + ((op >>> 6) & 31)) | 0;
            break;
          case 64: case 65: case 66: case 67: // STRH immediate
            access = STORE16;
            address = (R[(op >>> 3) & 7] + ((op >>> 5) & 0x3e)) | 0;
            break;
          case 68: case 69: case 70: case 71: // LDRH immediate
            access = LOAD16;
            address = (R[(op >>> 3) & 7] + ((op >>> 5) & 0x3e)) | 0;
            break;
          case 72: case 73: case 74: case 75: // STR at SP
            access = STORE32;
            address = (R[SP] + ((op & 0xff) << 2)) | 0;
            t = (op >>> 8) & 7;
            break;
          case 76: case 77: case 78: case 79: // LDR at SP
            access = LOAD32;
            address = (R[SP] + ((op & 0xff) << 2)) | 0;
            t = (op >>> 8) & 7;
            break;
          case 80: case 81: case 82: case 83: // ADR
            R[(op >>> 8) & 7] = ((pc + 2) & ~3) + ((op & 0xff) << 2);
            break;
          case 84: case 85: case 86: case 87: // ADD SP plus immediate
            R[(op >>> 8) & 7] = R[SP] + ((op & 0xff) << 2);
            break;
          case 88: // ADD, SUB SP; compare and branch does not exist in ARMv6-M
            if (op & 0x100) rare = true;
            else R[SP] = op & 0x80 ? R[SP] - ((op & 0x7f) << 2) : R[SP] + ((op & 0x7f) << 2);
            break;
          case 89: { // SXTH, SXTB, UXTH, UXTB
            const x = R[(op >>> 3) & 7];
            switch ((op >>> 6) & 7) {
              case 0: R[t] = (x << 16) >> 16; break;
              case 1: R[t] = (x << 24) >> 24; break;
              case 2: R[t] = x & 0xffff; break;
              case 3: R[t] = x & 0xff; break;
              default: rare = true;
            }
            break;
          }
          case 90: { // PUSH
            let count = 0;
            for (let list = op & 0x1ff; list; list &= list - 1) count += 1;
            let to = (R[SP] - 4 * count - RAM) | 0;
            if (to >>> 0 > RAM_BYTES - 64 || to & 3) { rare = true; break; }
            R[SP] = to + RAM;
            to >>>= 2;
            for (let i = 0; i < 8; i += 1) {
              if (op & (1 << i)) { ram32[to] = R[i]; to += 1; left -= 1; }
            }
            if (op & 0x100) ram32[to] = R[LR];
            break;
          }
          case 94: { // POP
            let from = (R[SP] - RAM) | 0;
            if (from >>> 0 > RAM_BYTES - 64 || from & 3) { rare = true; break; }
            from >>>= 2;
            if (op & 0x100) {
              let count = 0;
              for (let list = op & 0xff; list; list &= list - 1) count += 1;
              const to = ram32[from + count];
              if (to >>> 28 === 15) { rare = true; break; }
              pc = to & ~1;
              left -= 2;
            }
            for (let i = 0; i < 8; i += 1) {
              if (op & (1 << i)) { R[i] = ram32[from]; from += 1; left -= 1; }
            }
            R[SP] = RAM + 4 * from + (op & 0x100 ? 4 : 0);
            break;
          }
          case 93: { // REV, REV16, REVSH
            const x = R[(op >>> 3) & 7], kind = (op >>> 6) & 7;
            if (kind === 0) {
              R[t] = (x << 24) | ((x & 0xff00) << 8) | ((x >>> 8) & 0xff00) | (x >>> 24);
            } else if (kind === 1) {
              R[t] = ((x & 0xff00ff) << 8) | ((x >>> 8) & 0xff00ff);
            } else if (kind === 3) {
              R[t] = ((x << 24) >> 16) | ((x >>> 8) & 0xff);
            } else {
              rare = true;
            }
            break;
          }
          case 95: // BKPT, hints
            if (op === 0xbf00) break; // NOP
            if (op === 0xbf40) { core.eventRegistered = true; break; } // SEV, unknown to rp2040js
            rare = true;
            break;
          case 96: case 97: case 98: case 99: { // STMIA
            const n = (op >>> 8) & 7;
            let to = (R[n] - RAM) | 0;
            if (to >>> 0 > RAM_BYTES - 64 || to & 3) { rare = true; break; }
            to >>>= 2;
            for (let i = 0; i < 8; i += 1) {
              if (op & (1 << i)) { ram32[to] = R[i]; to += 1; left -= 1; }
            }
            R[n] = RAM + 4 * to;
            break;
          }
          case 100: case 101: case 102: case 103: { // LDMIA
            const n = (op >>> 8) & 7;
            let from = (R[n] - RAM) | 0;
            if (from >>> 0 > RAM_BYTES - 64 || from & 3) { rare = true; break; }
            from >>>= 2;
            for (let i = 0; i < 8; i += 1) {
              if (op & (1 << i)) { R[i] = ram32[from]; from += 1; left -= 1; }
            }
            if (!(op & (1 << n))) R[n] = RAM + 4 * from;
            break;
          }
          case 104: case 105: case 106: case 107: case 108: case 109: case 110: case 111: {
            let taken = false; // B conditional; UDF and SVC are rare
            switch ((op >>> 8) & 15) {
              case 0: taken = nz === 0; break;
              case 1: taken = nz !== 0; break;
              case 2: taken = c !== 0; break;
              case 3: taken = c === 0; break;
              case 4: taken = nz < 0; break;
              case 5: taken = nz >= 0; break;
              case 6: taken = v !== 0; break;
              case 7: taken = v === 0; break;
              case 8: taken = c !== 0 && nz !== 0; break;
              case 9: taken = c === 0 || nz === 0; break;
              case 10: taken = nz >>> 31 === v; break;
              case 11: taken = nz >>> 31 !== v; break;
              case 12: taken = nz !== 0 && nz >>> 31 === v; break;
              case 13: taken = nz === 0 || nz >>> 31 !== v; break;
              default: rare = true;
            }
            if (taken) {
              pc = (pc + 2 + ((op << 24) >> 23)) | 0;
              left -= 1;
            }
            break;
          }
          case 112: case 113: case 114: case 115: // B
            pc = (pc + 2 + ((op << 21) >> 20)) | 0;
            left -= 1;
            break;
          case 120: case 121: case 122: case 123: { // BL; barriers and special registers are rare
            const low = code[(at >>> 1) + 1];
            if (low >>> 14 !== 3 || !(low & 0x1000)) { rare = true; break; }
            const sign = (op >>> 10) & 1;
            const i1 = 1 ^ sign ^ ((low >>> 13) & 1), i2 = 1 ^ sign ^ ((low >>> 11) & 1);
            R[LR] = (pc + 2) | 1;
            const high = -(sign << 24) | (i1 << 23) | (i2 << 22) | ((op & 0x3ff) << 12);
            pc = (pc + 2 + (high | ((low & 0x7ff) << 1))) | 0;
            left -= 2;
            break;
          }
          default: // CPS and what ARMv6-M does not have
            rare = true;
        }
        if (rare) {
          // Nothing of it has happened yet: the library does all of it, from its first cycle.
          if (access === NONE) { pc = (codeBase + at) | 0; left += 1; }
          break;
        }
        if (access === NONE) continue;

        const inRam = (address - RAM) >>> 0;
        if (inRam < RAM_BYTES) {
          left -= 1;
          switch (access) {
            case LOAD32: R[t] = ram32[inRam >>> 2]; break;
            case LOAD16: R[t] = ram16[inRam >>> 1]; break;
            case LOAD8: R[t] = ram8[inRam]; break;
            case LOAD_S8: R[t] = (ram8[inRam] << 24) >> 24; break;
            case LOAD_S16: R[t] = (ram16[inRam >>> 1] << 16) >> 16; break;
            case STORE32: ram32[inRam >>> 2] = R[t]; break;
            case STORE16: ram16[inRam >>> 1] = R[t]; break;
            default: ram8[inRam] = R[t];
          }
          continue;
        }
        const inFlash = (address - FLASH) >>> 0;
        if (inFlash < FLASH_BYTES && access < STORE32) {
          left -= 1;
          switch (access) {
            case LOAD32: R[t] = flash32[inFlash >>> 2]; break;
            case LOAD16: R[t] = flash16[inFlash >>> 1]; break;
            case LOAD8: R[t] = flash8[inFlash]; break;
            case LOAD_S8: R[t] = (flash8[inFlash] << 24) >> 24; break;
            default: R[t] = (flash16[inFlash >>> 1] << 16) >> 16;
          }
          continue;
        }

        // A peripheral: it reads the time, may schedule alarms and raise interrupts.
        core.cycles = end - left - 1; // the time at the start of the instruction
        const where = address >>> 0;
        switch (access) {
          case LOAD32: R[t] = chip.readUint32(where); break;
          case LOAD16: R[t] = chip.readUint16(where); break;
          case LOAD8: R[t] = chip.readUint8(where); break;
          case LOAD_S8: R[t] = (chip.readUint8(where) << 24) >> 24; break;
          case LOAD_S16: R[t] = (chip.readUint16(where) << 16) >> 16; break;
          case STORE32: chip.writeUint32(where, R[t] >>> 0); break;
          case STORE16: chip.writeUint16(where, R[t] & 0xffff); break;
          default: chip.writeUint8(where, R[t] & 0xff);
        }
        core.cycles += 1 + busCycles(address, access >= STORE32);
        end = core.limit;
        left = end - core.cycles;
        if (core.interruptsUpdated) break;
      }

      core.cycles = end - left;
      core.N = nz < 0;
      core.Z = nz === 0;
      core.C = c !== 0;
      core.V = v !== 0;
      R[PC] = pc;
      if (rare) core.executeInstruction();
    }
  };
}
