// Runs pieces of program that a test in Python sends, one JSON text a line: {"id", "run"}. Answers with
// {"id", "value"} or {"id", "error", "name", "code"}; `tell(value)` says something without being asked.

import { createInterface } from "node:readline";

import * as umq from "../../umq.js";

const AsyncFunction = (async () => {}).constructor;
const state = {}; // what one piece leaves for the next

function spelled(value) {
  return JSON.stringify(value, (_, each) =>
    each instanceof Uint8Array ? { hex: Buffer.from(each).toString("hex") } : each,
  );
}

function say(message) {
  process.stdout.write(`${spelled(message)}\n`);
}

const tell = (value) => say({ told: value });

async function run({ id, run: program }) {
  try {
    const value = await new AsyncFunction("umq", "state", "tell", program)(umq, state, tell);
    say({ id, value: value ?? null });
  } catch (error) {
    say({ id, error: error.message, name: error.name, code: error.code ?? null });
  }
}

createInterface({ input: process.stdin })
  .on("line", (line) => run(JSON.parse(line)))
  .on("close", () => process.exit(0));
