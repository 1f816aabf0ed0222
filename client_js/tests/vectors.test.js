// The golden vectors, which the broker's codec reads, too.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Peer, Violation, parse, spell } from "../umq.js";

const file = new URL("../../tests/vectors/umq.json", import.meta.url);
const { vectors } = JSON.parse(readFileSync(file, "utf8"));
const RULES = { "umq.max_id_digits": "maxIdDigits" }; // a limit has its own name here
const texts = vectors.filter((each) => each.kind === "text");

const textOf = ({ hex }) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(Buffer.from(hex, "hex"));
const base36 = (number) => number.toString(36).toUpperCase();

test("there are vectors", () => {
  assert(texts.length > 50);
});

for (const vector of texts) {
  test(`${vector.name} ${vector.requirements.join(" ")}`, () => {
    const { event, violation } = vector;
    if (violation === null) {
      const message = parse(textOf(vector));
      const { command, payload, attachments } = event;
      assert.deepEqual(message, { command, id: idOf(vector), payload, attachments });
      if (vector.encodes) {
        assert.equal(spell(message), textOf(vector));
      }
    } else {
      assert.throws(
        () => parse(textOf(vector)),
        (error) => {
          assert(error instanceof Violation);
          assert.equal(error.rule, RULES[violation.rule] ?? violation.rule);
          return true;
        },
      );
    }
  });
}

/** Return the event's id; JSON's numbers do not hold the longest ones, which have 13 digits. */
function idOf({ event, hex }) {
  return Number.isSafeInteger(event.id)
    ? base36(event.id)
    : /[0-9A-Z]{13}(?=:)/.exec(Buffer.from(hex, "hex").toString())[0].replace(/^0+/, "");
}

test("every violation of a vector ends a connection with F, whoever reads it", () => {
  const broken = texts.filter((each) => each.violation !== null);
  assert(broken.length > 15);
  for (const vector of broken) {
    for (const role of ["client", "server"]) {
      const peer = new Peer(role);
      if (role === "client") {
        peer.hello("");
        peer.receiveText("W1:");
      } else {
        peer.receiveText("H1:");
        peer.welcome("");
      }
      peer.takeOutput();
      assert.equal(peer.receiveText(textOf(vector)).at(-1)?.type, "closed", vector.name);
      assert.match(peer.takeOutput()[0], /^F0:3 /, vector.name);
      assert(peer.closing, vector.name);
    }
  }
});
