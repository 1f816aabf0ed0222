// Every common instruction with random operands, by rp2040js' own core and by thumb.mjs: registers,
// flags, memory and cycles must be the same after each. Exits 1 and prints the difference if not.
//
// Usage: RP2040JS=FOLDER node thumb_lockstep.mjs EMULATOR_FOLDER SEED COUNT

import { pathToFileURL } from "node:url";

const [folder, seedText, countText] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${folder}/${name}.mjs`).href);
const { RP2040 } = await load("chip");
const { makeRunnable } = await load("thumb");

const RAM = 0x20000000, CODE = RAM + 0x1000, DATA = RAM + 0x8000;
const ADDRESSED = 4; // r4..r7 and SP always point into RAM

let state = Number(seedText) >>> 0 || 1;
const random = (below) => {
  state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
  return (state >>> 0) % below;
};
const corner = [0, 1, 2, 31, 32, 0x7fffffff, 0x80000000, 0x80000001, 0xfffffffe, 0xffffffff];
const value = () =>
  random(3) ? (random(65536) * 65536 + random(65536)) >>> 0 : corner[random(corner.length)];

const chips = [new RP2040(), new RP2040()];
makeRunnable(chips[1].core);
for (let at = 0; at < chips[0].sram.length; at += 1) {
  chips[0].sram[at] = chips[1].sram[at] = random(256);
}
const low = () => random(8);

/** Opcodes that rp2040js gets right; the others follow below. */
const kinds = [
  () => random(0x1800), // shifts by immediate
  () => 0x1800 + random(0x800), // add and subtract, three operands
  () => 0x2000 + random(0x2000), // with an 8-bit immediate
  () => 0x4000 + ([0, 1, 8, 9, 10, 11, 12, 13, 14, 15][random(10)] << 6) + random(64),
  () => 0x4400 + (random(2) << 9) + (random(8) << 3) + (low() & 3), // ADD, MOV
  () => 0x4500 + random(128), // CMP of high registers
  () => 0x4800 + random(0x800), // LDR literal
  () => 0x5000 + (random(8) << 9) + (random(4) << 6) + ((ADDRESSED + random(4)) << 3) + random(4),
  () => 0x6000 + (random(6) << 11) + (random(32) << 6) + ((ADDRESSED + random(4)) << 3) + random(4),
  () => 0x9000 + random(0x1000), // at SP
  () => 0xa000 + random(0x1000), // ADR, ADD from SP
  () => 0xb000 + random(0x100), // ADD, SUB to SP
  () => 0xb200 + random(0x100), // extend
  () => 0xb400 + random(0x200), // PUSH
  () => 0xbc00 + random(0x100), // POP without PC
  () => 0xba00 + [0, 64, 192][random(3)] + random(64), // REV
  () => 0xc000 + (random(2) << 11) + ((ADDRESSED + random(4)) << 8) + (1 + random(15)),
  () => 0xd000 + random(0xe00), // conditional branch
  () => 0xe000 + random(0x800), // branch
];

function compare(step, op) {
  const [theirs, ours] = chips.map((chip) => chip.core);
  const look = ({ registers, cycles, N, Z, C, V }) =>
    [...registers.subarray(0, 15), registers[15] & ~1, cycles, N, Z, C, V].join(" ");
  if (look(theirs) !== look(ours) || Buffer.compare(chips[0].sram, chips[1].sram) !== 0) {
    console.error(`step ${step}, opcode ${op.toString(16)}:`);
    console.error(`theirs ${look(theirs)}\nours   ${look(ours)}`);
    process.exit(1);
  }
}

const count = Number(countText);
for (let step = 0; step < count; step += 1) {
  const op = kinds[random(kinds.length)]();
  const registers = Array.from({ length: 15 }, (_, i) => {
    if (i >= ADDRESSED && i < 8) return DATA + 4 * random(256);
    return i === 13 ? DATA + 0x1000 + 4 * random(256) : value();
  });
  // The index register of register-offset accesses stays small and aligned.
  if (op >>> 12 === 5) registers[(op >>> 6) & 7] = 4 * random(64);
  const flags = [random(2) === 0, random(2) === 0, random(2) === 0];
  const negative = random(2) === 0;
  for (const chip of chips) {
    const core = chip.core;
    for (let i = 0; i < 15; i += 1) core.registers[i] = registers[i];
    core.PC = CODE;
    [core.Z, core.C, core.V] = flags;
    core.N = negative && !core.Z;
    chip.sramView.setUint16(CODE - RAM, op, true);
    core.limit = core.cycles + 1;
  }
  chips[0].core.executeInstruction();
  chips[1].core.run();
  compare(step, op);
}

// Shifts by register, whose carry rp2040js gets wrong at 0 and above 32. ARMv6-M manual, A2.2.1.
const LSL = 0x4080, LSR = 0x40c0, ASR = 0x4100, ROR = 0x41c0;
const shifts = [
  // opcode, operand, amount, carry before, result, carry after
  [LSL, 0x80000001, 0, true, 0x80000001, true],
  [LSL, 0x80000001, 1, false, 2, true],
  [LSL, 0x80000001, 31, true, 0x80000000, false],
  [LSL, 0x80000001, 32, false, 0, true],
  [LSL, 0x80000001, 33, true, 0, false],
  [LSL, 1, 0x101, true, 2, false], // only the low byte counts
  [LSR, 0x80000001, 0, true, 0x80000001, true],
  [LSR, 0x80000001, 1, false, 0x40000000, true],
  [LSR, 0x80000001, 32, false, 0, true],
  [LSR, 0x80000001, 33, true, 0, false],
  [ASR, 0x80000001, 0, true, 0x80000001, true],
  [ASR, 0x80000001, 1, false, 0xc0000000, true],
  [ASR, 0x80000001, 32, false, 0xffffffff, true],
  [ASR, 0x80000001, 200, false, 0xffffffff, true],
  [ASR, 0x7fffffff, 200, true, 0, false],
  [ROR, 0x80000001, 0, true, 0x80000001, true],
  [ROR, 0x00000001, 1, false, 0x80000000, true],
  [ROR, 0x80000000, 32, false, 0x80000000, true],
  [ROR, 0x00000010, 33, true, 8, false],
];
/** Run `op r0, r1` and require result, carry and, if given, overflow. */
function require(op, first, second, carryIn, result, carry, overflow) {
  const { core, sramView } = chips[1];
  sramView.setUint16(CODE - RAM, op | (1 << 3), true);
  core.registers[0] = first;
  core.registers[1] = second;
  core.PC = CODE;
  core.C = carryIn;
  core.limit = core.cycles + 1;
  core.run();
  const got = [core.registers[0], core.C, core.Z, core.N, overflow === undefined || core.V];
  const want = [result, carry, result === 0, result >>> 31 === 1, overflow ?? true];
  if (got.join() !== want.join()) {
    const call = `opcode ${op.toString(16)} of ${first}, ${second}, ${carryIn}`;
    console.error(`${call}: ${got}, expected ${want}`);
    process.exit(1);
  }
}
for (const shift of shifts) require(...shift);

// Addition and subtraction with carry, whose overflow rp2040js gets wrong when adding the carry
// changes a sign. AddWithCarry of the ARMv6-M manual, D6.4.3.
const ADC = 0x4140, SBC = 0x4180;
for (let step = 0; step < count; step += 1) {
  const first = value(), second = value(), carryIn = random(2) === 1;
  for (const op of [ADC, SBC]) {
    const addend = op === ADC ? second : ~second >>> 0;
    const unsigned = first + addend + Number(carryIn);
    const signed = (first | 0) + (addend | 0) + Number(carryIn);
    const result = unsigned >>> 0;
    require(op, first, second, carryIn, result, unsigned !== result, signed !== (result | 0));
  }
}
console.log(`${count} instructions alike`);
