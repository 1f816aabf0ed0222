// Both sides of a connection, back to back and alone: no socket, no clock.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  AttachmentError,
  BadArgument,
  CallFailed,
  ConnectionLost,
  LimitExceeded,
  Peer,
  Refused,
  Violation,
  parse,
  spell,
} from "../umq.js";
import { Random } from "./random.js";

const bytes = (...list) => Uint8Array.from(list);

/** Hand what one side has to send to the other; returns its events. */
function carry(from, to) {
  return from.takeOutput().flatMap((each) => receive(to, each));
}

function receive(peer, each) {
  return typeof each === "string" ? peer.receiveText(each) : peer.receiveBinary(each);
}

/** Return both sides after the handshake. */
function pair(clientLimits, serverLimits) {
  const client = new Peer("client", clientLimits);
  const server = new Peer("server", serverLimits);
  client.hello("who");
  const [hello] = carry(client, server);
  assert.deepEqual(hello, { type: "hello", version: 1, payload: "who", attachments: [] });
  server.welcome("you");
  const [welcome] = carry(server, client);
  assert.deepEqual(welcome, { type: "welcome", version: 1, payload: "you", attachments: [] });
  return { client, server };
}

/** Return a client that has been welcomed, and what ends it with F. */
function opened(limits) {
  const { client } = pair(limits);
  return client;
}

function assertBroken(events, peer, rule, code = 3) {
  const last = events.at(-1);
  assert.equal(last?.type, "closed");
  assert(last.error instanceof Violation, String(last.error));
  assert.equal(last.error.rule, rule);
  assert(peer.closing);
  const output = peer.takeOutput();
  assert.match(output.at(-1), new RegExp(`^F0:${code} `));
  assert.deepEqual(peer.receiveText("C1:x"), []);
  assert.deepEqual(peer.receiveBinary(bytes(1)), []);
  assert.deepEqual(peer.takeOutput(), []);
}

test("R8, R9, R10: H and W may have attachments, and what follows is told behind them", () => {
  const client = new Peer("client");
  const server = new Peer("server");
  client.hello("h", [bytes(1)]);
  const [text, binary] = client.takeOutput();
  assert.equal(text, "A1:H1:h");
  assert.deepEqual(server.receiveText(text), []);
  assert.deepEqual(server.receiveBinary(binary)[0].attachments, [bytes(1)]);
  server.welcome("w", [bytes(2)]);
  server.call("early");
  const [welcome, attachment, call] = server.takeOutput();
  assert.deepEqual(client.receiveText(welcome), []);
  assert.deepEqual(client.receiveText(call), []); // A10
  assert.deepEqual(
    client.receiveBinary(attachment).map((each) => each.type),
    ["welcome", "call"],
  );
});

test("A12: versions", () => {
  for (const [text, isGood] of [["H1:", 1], ["HZZ:", 1], ["H01:", 1], ["H0:", 0], ["H:", 0]]) {
    const server = new Peer("server");
    const events = server.receiveText(text);
    if (isGood) {
      assert.equal(events[0].type, "hello", text);
    } else {
      assertBroken(events, server, "A12", 5);
    }
  }
  for (const text of ["W0:", "W:", "W2:"]) {
    const client = new Peer("client");
    client.hello("");
    client.takeOutput();
    assertBroken(client.receiveText(text), client, "A12", 5);
  }
});

test("A24: H and W come once, from the right side, and first", () => {
  for (const text of ["H1:", "W1:"]) {
    const client = opened();
    assertBroken(client.receiveText(text), client, "A24");
  }
  const server = new Peer("server");
  assertBroken(server.receiveText("W1:"), server, "A24");
  const deciding = new Peer("server");
  deciding.receiveText("H1:");
  assertBroken(deciding.receiveText("H1:"), deciding, "A24");
  for (const command of "CBRETDUSX!") {
    const early = new Peer("server");
    assertBroken(early.receiveText(`${command}1:1:a=b`), early, "R8");
  }
});

test("R11, R12, R13: F is the last word, and nothing is said to it", () => {
  for (const [text, code, message] of [
    ["F0:123 Authorization failed", 123, "Authorization failed"],
    ["F:5", 5, "refused with code 5"],
    ["FZ:no code", 0, "no code"],
  ]) {
    const client = new Peer("client");
    client.hello("");
    client.takeOutput();
    const [closed] = client.receiveText(text);
    assert(closed.error instanceof Refused);
    assert.deepEqual([closed.error.code, closed.error.message], [code, message]);
    assert(client.closing);
    assert.deepEqual(client.takeOutput(), []);
  }
});

test("R14, R16, R21, R27, A11: what has no attachments", () => {
  const rules = { "-": "R16", F: "R14", E: "R21", "!": "R21", D: "R27", U: "R29", X: "A11" };
  for (const [command, rule] of Object.entries(rules)) {
    const client = opened();
    assertBroken(client.receiveText(`A1:${command}1:x`), client, rule);
  }
});

test("R17 to R20: calls are answered once, in any order", () => {
  const { client, server } = pair();
  const ids = ["one", "two", "three"].map((each) => client.call(each));
  const calls = carry(client, server);
  assert.deepEqual(calls.map((each) => each.id), ids);
  server.result(ids[2], "3", [bytes(3)]);
  server.fail(ids[0], new CallFailed("no", 7));
  server.result(ids[1], "2");
  assert.throws(() => server.result(ids[1], "again"), BadArgument);
  assert.throws(() => server.fail(ids[1], new CallFailed("again")), BadArgument);
  assert.deepEqual(carry(server, client), [
    { type: "result", id: ids[2], payload: "3", attachments: [bytes(3)] },
    { type: "failure", id: ids[0], code: 7, text: "no" },
    { type: "result", id: ids[1], payload: "2", attachments: [] },
  ]);
  assert.equal(client.pendingCalls, 0);
  assert.deepEqual(client.receiveText(`R${ids[0]}:late`), []);
  assert.deepEqual(client.receiveText("E7:nobody asked"), []);
});

test("A3: ids are numbers", () => {
  const server = pair().server;
  const [call] = server.receiveText("C00A:x");
  assert.equal(call.id, "A");
  server.result("A", "");
  assert.deepEqual(server.takeOutput(), ["RA:"]);
  const [zero] = server.receiveText("C:x");
  assert.equal(zero.id, "0");
  server.fail("0", new CallFailed("no"));
  assert.deepEqual(server.takeOutput(), ["E0:no"]);
  const client = opened();
  const id = client.call("x");
  assert.equal(client.receiveText(`R000${id}:`)[0].id, id);
});

test("A14: ! is a failed call", () => {
  const client = opened();
  const id = client.call("x");
  assert.deepEqual(client.receiveText(`!${id}:6 Not RPC server`), [
    { type: "failure", id, code: 6, text: "Not RPC server" },
  ]);
});

test("A25: an id that is in use", () => {
  for (const again of ["C1:b", "B1:0:b"]) {
    const client = opened();
    client.receiveText("C1:a");
    assertBroken(client.receiveText(again), client, "A25");
  }
  const client = opened();
  client.receiveText("C1:a");
  client.result("1", "");
  assert.equal(client.receiveText("C1:b")[0].type, "call");
});

test("R22 to R24, A15, A16: callbacks", () => {
  const { client, server } = pair();
  const callback = client.registerCallback();
  const id = server.callBack(callback, "a:b", [bytes(1)]);
  assert.deepEqual(carry(server, client), [
    { type: "callback", id, callback, payload: "a:b", attachments: [bytes(1)] },
  ]);
  client.result(id, "ok");
  assert.equal(carry(client, server)[0].payload, "ok");
  const other = server.callBack(callback, "once more", [bytes(2)]);
  assert.deepEqual(carry(server, client), []);
  assert.deepEqual(carry(client, server), [
    { type: "failure", id: other, code: 2, text: "Callback not found" },
  ]);
  client.unregisterCallback(client.registerCallback());
  for (const [text, rule] of [["B1:noseparator", "R22"], ["B1:a:x", "R2"]]) {
    const alone = opened();
    assertBroken(alone.receiveText(text), alone, rule);
  }
});

test("R25 to R28: topics", () => {
  const { client, server } = pair();
  const id = client.openSubscription();
  server.openTopic(id);
  assert.throws(() => server.openTopic(id), BadArgument);
  assert(server.update(id, "1", [bytes(1), bytes(2)]));
  server.closeTopic(id);
  server.closeTopic(id);
  assert(!server.update(id, "2"));
  assert.deepEqual(carry(server, client), [
    { type: "update", topic: id, payload: "1", attachments: [bytes(1), bytes(2)] },
    { type: "topicClosed", topic: id },
  ]);
  assert.deepEqual(client.receiveText(`D${id}:`), []);
});

test("R29 to R31, A18: U is answered by D, and what is under way is swallowed", () => {
  const { client, server } = pair();
  const id = client.openSubscription();
  server.openTopic(id);
  server.update(id, "under way", [bytes(1)]);
  server.update(id, "this, too");
  client.unsubscribe(id);
  client.unsubscribe(id);
  assert.deepEqual(carry(server, client), []);
  assert.deepEqual(carry(client, server), [{ type: "topicUnsubscribed", topic: id }]);
  assert.deepEqual(carry(server, client), [{ type: "topicClosed", topic: id }]);
  assert.deepEqual(server.receiveText(`U${id}:`), []);
  assert.deepEqual(server.takeOutput(), []);
});

test("what waits for its attachment is not told of a topic that was left", () => {
  const client = opened();
  const id = client.openSubscription();
  assert.deepEqual(client.receiveText(`A1:T${id}:x`), []);
  client.unsubscribe(id);
  assert.deepEqual(client.receiveBinary(bytes(1)), []);
  assert.equal(client.strayAttachments, 0);
  assert.deepEqual(client.receiveText(`D${id}:`), [{ type: "topicClosed", topic: id }]);
});

test("A17: U to an unknown topic, once", () => {
  const client = opened({ maxTopics: 3 });
  for (const text of ["T9:a", "A1:T9:b", "T9:c", "T8:", "T7:"]) {
    assert.deepEqual(client.receiveText(text), []);
  }
  assert.deepEqual(client.receiveBinary(bytes(1)), []); // it was announced
  assert.equal(client.strayAttachments, 0);
  assert.deepEqual(client.takeOutput(), ["U9:", "U8:", "U7:"]);
  client.receiveText("T6:"); // no more are remembered
  client.receiveText("T9:");
  assert.deepEqual(client.takeOutput(), ["U6:", "U9:"]);
});

test("R32 to R35: attributes", () => {
  const { client, server } = pair();
  client.setAttribute("k", "a=b");
  client.setAttribute(" s", " ", [bytes(1)]);
  client.unsetAttribute("k");
  assert.throws(() => client.setAttribute("a=", ""), BadArgument);
  const output = client.takeOutput();
  assert.deepEqual(output, ["S:k=a=b", "A1:S: s= ", bytes(1), "X:k"]);
  for (const each of output) {
    receive(server, each);
  }
  assert.deepEqual([...server.attributes], [[" s", { value: " ", attachments: [bytes(1)] }]]);
  assert.equal(server.receiveText("S5:x=1")[0].name, "x");
  assert.equal(server.receiveText("S:=")[0].name, "");
  assertBroken(server.receiveText("S:novalue"), server, "A22");
  assert.equal(server.attributes.size, 0);
});

test("the same attribute, with and without attachments, in order", () => {
  const server = pair().server;
  assert.deepEqual(server.receiveText("A1:S:k=1"), []);
  assert.deepEqual(server.receiveText("X:k"), []);
  assert.equal(server.receiveText("S:other=2").length, 1);
  assert.deepEqual(
    server.receiveBinary(bytes(1)).map((each) => each.type),
    ["attributeSet", "attributeUnset"],
  );
  assert.deepEqual([...server.attributes.keys()], ["other"]);
});

test("A8, A9, R15: - takes the place of an attachment; those of nobody are counted", () => {
  const client = opened();
  const id = client.openSubscription();
  assert.deepEqual(client.receiveText("-:early"), []);
  assert.deepEqual(client.receiveBinary(bytes(1)), []);
  assert.equal(client.strayAttachments, 2);
  client.receiveText(`A3:T${id}:x`);
  client.receiveBinary(bytes(1));
  client.receiveText("-:Upstream download error");
  const [update] = client.receiveBinary(bytes());
  assert.deepEqual(update.attachments[0], bytes(1));
  assert(update.attachments[1] instanceof AttachmentError);
  assert.equal(update.attachments[1].message, "Upstream download error");
  assert.deepEqual(update.attachments[2], bytes());
});

test("A5, A6: counts are in base 36, and may be 0", () => {
  assert.equal(parse("A10:C1:x").attachments, 36);
  for (const text of ["A0:C1:x", "A:C1:x"]) {
    assert.equal(opened().receiveText(text)[0].type, "call");
  }
  assert.equal(spell({ command: "C", id: "1", payload: "x", attachments: 36 }), "A10:C1:x");
});

test("limits", () => {
  const limits = {
    maxTextLength: 30,
    maxAttachmentBytes: 4,
    maxAttachments: 3,
    maxHeldBytes: 20,
    maxHeldMessages: 2,
    maxIdDigits: 4,
    maxPendingCalls: 2,
    maxTopics: 2,
    maxCallbacks: 2,
    maxAttributes: 2,
    maxAttributeBytes: 12,
  };
  const cases = [
    [[`C1:${"x".repeat(27)}`], `C2:${"x".repeat(28)}`, "maxTextLength"],
    [["A1:C1:", bytes(1, 2, 3, 4)], bytes(1, 2, 3, 4, 5), "maxAttachmentBytes"],
    [["A3:C1:"], "A4:C2:", "maxAttachments"],
    [["A3:C1:", bytes(1, 2, 3, 4), bytes(1, 2, 3, 4)], `S:${"x".repeat(15)}=`, "maxHeldBytes"],
    [["A3:C1:12345", bytes(1, 2, 3, 4), bytes(1, 2, 3, 4)], bytes(1, 2), "maxHeldBytes"],
    [["A1:C1:", "A1:C2:"], "S:a=", "maxHeldMessages"],
    [["C0001:"], "C00002:", "maxIdDigits", 3],
    [["C1:", "C2:"], "C3:", "maxPendingCalls"],
    [["S:a=1", "S:b=1"], "S:c=1", "maxAttributes"],
    [["S:a=12345678901", "S:a=12345678901"], "S:a=123456789012", "maxAttributeBytes"],
  ];
  for (const [allowed, tooMuch, rule, code = 1] of cases) {
    const client = opened(limits);
    for (const each of allowed) {
      assert(receive(client, each).every((event) => event.type !== "closed"), String(each));
    }
    assertBroken(receive(client, tooMuch), client, rule, code);
  }
  for (const ask of [
    (client) => client.call(""),
    (client) => client.registerCallback(),
    (client) => client.openSubscription(),
  ]) {
    const client = opened(limits);
    ask(client);
    ask(client);
    assert.throws(() => ask(client), LimitExceeded);
  }
  const publisher = opened(limits);
  publisher.openTopic("1");
  publisher.openTopic("2");
  assert.throws(() => publisher.openTopic("3"), LimitExceeded);
});

test("an attribute that is set again gives back what it took", () => {
  const client = opened({ maxAttributeBytes: 12 });
  for (let times = 0; times < 5; times += 1) {
    client.receiveText("A1:S:a=123456789");
    assert.equal(client.receiveBinary(bytes(1, 2))[0].type, "attributeSet");
    client.receiveText("X:a");
  }
  client.receiveText("A1:S:a=1");
  assertBroken(client.receiveBinary(new Uint8Array(11)), client, "maxAttributeBytes", 1);
});

test("nothing is said before the handshake, or behind the end", () => {
  const client = new Peer("client");
  const commands = [
    () => client.call("x"),
    () => client.callBack("1", "x"),
    () => client.openSubscription(),
    () => client.openTopic("1"),
    () => client.setAttribute("a", "b"),
    () => client.unsetAttribute("a"),
    () => client.welcome(""),
  ];
  for (const command of commands) {
    assert.throws(command, ConnectionLost);
  }
  client.hello("");
  client.fatal(1, "no");
  client.fatal(1, "no more");
  for (const command of [...commands, () => client.hello("")]) {
    assert.throws(command, ConnectionLost);
  }
  assert.deepEqual(client.takeOutput(), ["H1:", "F0:1 no"]);
});

test("what cannot be sent is the caller's mistake, and nothing is sent of it", () => {
  const client = opened();
  for (const command of [
    () => client.call("\ud800"),
    () => client.call("x", ["text"]),
    () => client.callBack("a", "x"),
    () => client.callBack("", "x"),
    () => client.openTopic("00000000000000"),
    () => client.setAttribute("a", "\udfff"),
  ]) {
    assert.throws(command, BadArgument);
  }
  assert.deepEqual(client.takeOutput(), []);
  assert.equal(client.pendingCalls, 0);
  client.receiveText("C1:");
  client.fail("1", new CallFailed("\ud800")); // an error's text may quote anything
  assert.deepEqual(client.takeOutput(), ["E1:\ufffd"]);
});

test("ids come again, but not while they are in use", () => {
  const client = opened({ maxPendingCalls: 3 });
  const ids = new Set();
  for (let times = 0; times < 100; times += 1) {
    const id = client.call("");
    assert(!ids.has(id));
    ids.add(id);
    client.forget(id);
  }
});

/**
 * Attachment matching, for any conversation: whatever is between a message and its binaries (A10),
 * each gets its own, and messages of one order are told in the order in which they were sent.
 */
test("attachments find their messages, in any order that a peer may choose", () => {
  for (let seed = 1; seed <= 300; seed += 1) {
    const random = new Random(seed);
    const client = opened({ maxTopics: 4 });
    const topics = [client.openSubscription(), client.openSubscription()];
    const asked = Array.from({ length: 5 }, () => client.call(""));
    const texts = []; // what is sent, with what it must be told as
    const binaries = [];
    for (let count = 0; count < 30; count += 1) {
      const attachments = Array.from({ length: random.below(4) }, () =>
        random.below(5) === 0 ? new AttachmentError(`e${count}`) : random.bytes(random.below(6)),
      );
      const kind = random.below(5);
      const spelled =
        kind < 2
          ? `T${topics[kind]}:${count}`
          : kind === 2
            ? `C${count.toString(36).toUpperCase()}:${count}`
            : kind === 3
              ? `S:${random.pick("ab")}=${count}`
              : asked.length > 0
                ? `R${asked.splice(random.below(asked.length), 1)[0]}:${count}`
                : `T9:${count}`; // nobody is told
      texts.push({ number: String(count), spelled, attachments });
    }
    // Texts and binaries are two queues; they are sent interleaved at random.
    const events = [];
    const sent = [...texts];
    while (sent.length > 0 || binaries.length > 0) {
      if (sent.length > 0 && (binaries.length === 0 || random.below(2) === 0)) {
        const { spelled, attachments } = sent.shift();
        const announced = attachments.length > 0 ? `A${attachments.length}:` : "";
        events.push(...client.receiveText(announced + spelled));
        binaries.push(...attachments);
      } else {
        const next = binaries.shift();
        events.push(
          ...(next instanceof AttachmentError
            ? client.receiveText(`-:${next.message}`)
            : client.receiveBinary(next)),
        );
      }
    }
    const told = new Map();
    const lastOf = new Map();
    for (const event of events) {
      const number = "value" in event ? event.value : event.payload;
      told.set(number, event.attachments);
      const order = `${event.type} ${event.topic ?? event.name ?? ""}`;
      if (event.type !== "result") {
        assert(Number(number) > (lastOf.get(order) ?? -1), `seed ${seed}: ${order} ${number}`);
        lastOf.set(order, Number(number));
      }
    }
    for (const { number, spelled, attachments } of texts) {
      if (spelled.startsWith("T9")) {
        assert(!told.has(number));
      } else {
        assert.deepEqual(told.get(number), attachments, `seed ${seed}: ${spelled}`);
      }
    }
    assert.equal(client.strayAttachments, 0, `seed ${seed}`);
  }
});

test("whatever comes: no exception, bounded output, and the end is the end", () => {
  const seeds = [
    "H1:x", "W1:", "A2:C1:x", "C1:[]", "B2:1:x", "R1:", "E1:7 no", "T1:[]", "A1:T2:[]", "D1:",
    "U1:", "S:a=b", "A1:S:a=b", "X:a", "-:no", "F0:3 no", "!1:6 no", "A10:C1:x", "CZZZZZZZZZZZZZ:",
  ];
  const alphabet = "AHWFCBRETDUSX-!:=0129az \n\ud83d\ud83d\ude00é";
  let closed = 0;
  for (let seed = 1; seed <= 4000; seed += 1) {
    const random = new Random(seed);
    const peer = random.below(2) === 0 ? new Peer("server") : opened({ maxTopics: 2 });
    if (peer.state === "open") {
      peer.openSubscription();
      peer.openTopic("1");
      peer.call("x");
      peer.registerCallback();
    }
    peer.takeOutput();
    let isOver = false;
    for (let step = 0; step < 12; step += 1) {
      const output = peer.takeOutput();
      assert(output.length <= 2, `seed ${seed}: ${output}`);
      let events;
      if (random.below(5) === 0) {
        events = peer.receiveBinary(random.bytes(random.below(8)));
      } else {
        let text = random.pick(seeds);
        for (let change = random.below(4); change > 0; change -= 1) {
          const at = random.below(text.length + 1);
          const cut = random.below(3);
          text = text.slice(0, at) + random.pick(alphabet) + text.slice(at + cut);
        }
        events = peer.receiveText(text);
      }
      assert(!isOver || events.length === 0, `seed ${seed}`);
      isOver ||= events.some((each) => each.type === "closed");
      assert.equal(isOver, peer.closing, `seed ${seed}`);
      if (peer.state === "deciding") {
        peer.welcome("");
      }
    }
    closed += isOver ? 1 : 0;
  }
  assert(closed > 1000 && closed < 4000, `${closed} of 4000 ended`);
});
