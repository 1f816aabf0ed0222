// The emulator process of one board. Started by supervisor.py, not by hand.
//
// Console bytes go through file descriptor 3. Standard input takes JSON lines, {"id", "do", ...}
// with do = run | halt | gpio | set_gpio | gpio_changes; standard output gives {"id", "ok", ...} for each, and
// {"event": "ready" | "connected" | "reset" | "bootsel"}. The process ends with standard input.

import net from "node:net";
import { createInterface } from "node:readline";

import { powerOn } from "./board.mjs";
import { FlashImage } from "./flash.mjs";
import { captureConsole, log } from "./log.mjs";
import { PinChanges, pinLevel } from "./pins.mjs";
import { RunLoop } from "./run_loop.mjs";
import { UartServer } from "./uart_server.mjs";

const PINS = 30;

captureConsole();
const [flashPath, uidHex] = process.argv.slice(2);
const uid = Buffer.from(uidHex, "hex");
const flash = new FlashImage(flashPath);
const loop = new RunLoop();
const wires = new Map(); // levels set from outside, by pin; they outlast a reset
const changes = new PinChanges();
let chip = null;

const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

const host = new net.Socket({ fd: 3, readable: true, writable: true });
host.on("data", (bytes) => {
  if (!chip) return; // no console in BOOTSEL: bytes go nowhere
  loop.input(() => {
    if (!chip.usbCtrl.send(bytes)) host.pause();
  });
});
host.on("drain", () => {
  if (chip) loop.input(() => chip.usbCtrl.pause(false));
});
host.on("error", () => process.exit(0)); // the supervisor is gone

const uarts = [0, 1].map(
  (index) => new UartServer(() => {
    if (chip) loop.input(() => chip.uart[index].lineReady());
    else uarts[index].discard(); // no CPU, no receiver
  }),
);

function run(kept) {
  loop.stop();
  const board = powerOn({
    flash,
    uid,
    kept,
    lines: uarts,
    wires,
    onConsole: (bytes) => {
      if (!host.write(bytes)) board.chip.usbCtrl.pause(true);
    },
    onConnected: () => say({ event: "connected" }),
    onReset: (next) => {
      loop.stop();
      board.chip.core.limit = 0; // the instruction that caused it is the last one
      setImmediate(() => {
        if (chip !== board.chip) return; // somebody else was quicker
        run(next);
        say({ event: "reset" });
      });
    },
    onBootsel: () => {
      halt();
      board.chip.core.limit = 0;
      say({ event: "bootsel" });
    },
  });
  chip = board.chip;
  chip.usbCtrl.drained = () => host.resume();
  if (host.writableNeedDrain) chip.usbCtrl.pause(true);
  for (const [pin, level] of wires) chip.gpio[pin].setInputValue(level);
  changes.follow(chip, wires);
  host.resume();
  loop.start(chip.core, board.clock);
}

function halt() {
  loop.stop();
  chip = null;
  host.resume();
}

function pinOf(request) {
  if (!Number.isInteger(request.pin) || request.pin < 0 || request.pin >= PINS) {
    throw new Error(`there is no GPIO ${request.pin}; an RP2040 has GPIO 0 to ${PINS - 1}`);
  }
  return request.pin;
}

const actions = {
  run: () => run(null),
  halt,
  gpio(request) {
    const pin = pinOf(request);
    return { level: chip ? pinLevel(chip, pin, wires) : (wires.get(pin) ?? false) };
  },
  set_gpio(request) {
    const pin = pinOf(request);
    const before = wires.get(pin);
    wires.set(pin, Boolean(request.level));
    if (!chip || before === Boolean(request.level)) return; // the library sees an edge in any case
    loop.input(() => chip.gpio[pin].setInputValue(Boolean(request.level)));
    changes.look(chip, pin, wires);
  },
  gpio_changes: (request) => changes.since(request.since),
};

createInterface({ input: process.stdin })
  .on("line", (line) => {
    const request = JSON.parse(line);
    try {
      say({ id: request.id, ok: true, ...actions[request.do](request) });
    } catch (error) {
      say({ id: request.id, ok: false, error: error.message });
    }
  })
  .on("close", () => process.exit(0));

const ports = await Promise.all(uarts.map((uart) => uart.listen()));
log(`ready, UARTs on ports ${ports.join(" and ")}`);
say({ event: "ready", ports });
