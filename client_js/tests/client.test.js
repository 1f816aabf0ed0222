// The client, with the broker's end played by the test.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  AttachmentError,
  BadArgument,
  CallFailed,
  Client,
  ConnectionLost,
  LimitExceeded,
  Refused,
  TimedOut,
  UmqError,
  connect,
  socketUrl,
} from "../umq.js";
import { Listener } from "./memory_socket.js";
import { Random } from "./random.js";

/** Return a connected client with its broker's end. Its clock goes when the test says so. */
async function connected(t, options = {}, welcome = undefined) {
  const listener = listening(t);
  const { WebSocket } = listener;
  const client = new Client("umq://broker", { WebSocket, heartbeatMs: 0, ...options });
  t.after(() => client.close());
  const end = await listener.next();
  const hello = await end.accept(welcome);
  await client.ready();
  return { client, end, listener, hello };
}

function listening(t) {
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  return new Listener();
}

/** Let time pass until the client has made another attempt to connect. */
async function nextAttempt(t, listener) {
  const { attempts } = listener;
  while (listener.attempts === attempts) {
    t.mock.timers.tick(1000);
    await turn();
  }
}

/** Let what is to happen now happen. */
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Return a subscription whose broker's end has accepted it, and the topic's id. */
async function subscribed(client, end, ...args) {
  const coming = client.subscribe(...args);
  const call = await end.call();
  end.peer.openTopic(call.args[2]);
  end.answer(call.id, { subscribed: call.args[1] });
  return { subscription: await coming, topic: call.args[2], args: call.args };
}

function update(end, topic, list, attachments = []) {
  end.peer.update(topic, JSON.stringify(list), attachments);
  end.flush();
}

const bytes = (...list) => Uint8Array.from(list);

test("addresses", () => {
  const good = {
    "umq://h": "ws://h:8765/umq",
    "umqs://h:1": "wss://h:1/umq",
    "umq://[::1]": "ws://[::1]:8765/umq",
    "ws://h": "ws://h/umq",
    "https://h/": "wss://h/umq",
    "http://h:80/mq?a=1": "ws://h/mq?a=1",
    "UMQ://h:80": "ws://h/umq",
  };
  for (const [url, socket] of Object.entries(good)) {
    assert.equal(socketUrl(url), socket, url);
  }
  for (const url of ["", "h:1", "mqtt://h", "umq://", "umq://u:p@h", "umq://h:99999", "umq://a b"]) {
    assert.throws(() => socketUrl(url), BadArgument, url);
  }
  globalThis.location = { protocol: "https:", host: "page:9" };
  try {
    assert.equal(socketUrl(""), "wss://page:9/umq");
  } finally {
    delete globalThis.location;
  }
});

test("a hello says who we are, and no more", async (t) => {
  for (const [options, payload] of [
    [{}, ""],
    [{ token: "t" }, '{"token":"t"}'],
    [{ token: async () => "later" }, '{"token":"later"}'],
    [{ user: "u", password: "p" }, '{"user":"u","password":"p"}'],
    [{ hello: { a: 1 } }, '{"a":1}'],
  ]) {
    await t.test(payload, async (t) => {
      const { client, hello } = await connected(t, options);
      assert.equal(hello.payload, payload);
      assert.equal(client.welcome.broker, "MoteMQ 0");
    });
  }
});

test("a refusal is final", async (t) => {
  const listener = listening(t);
  const states = [];
  const connecting = connect("umq://broker", {
    WebSocket: listener.WebSocket,
    onState: (state) => states.push(state),
  });
  const end = await listener.next();
  await end.event("hello");
  end.peer.fatal(1, "wrong password");
  end.flush();
  await assert.rejects(connecting, (error) => {
    assert(error instanceof Refused);
    assert.equal(error.code, 1);
    assert.equal(error.message, "wrong password");
    return true;
  });
  assert.deepEqual(states, ["closed"]);
  assert.equal(listener.attempts, 1);
});

test("what the broker does not take is not sent", async (t) => {
  const { client, end } = await connected(t, {}, '{"max_text": 2000, "max_attachment": 100000}');
  for (const [body, limit] of [
    [new Uint8Array(100_001), "umq.max_attachment"],
    ["x".repeat(100_001), "umq.max_attachment"],
    ["\u20ac".repeat(650), "umq.max_text"],
    ["\0".repeat(400), "umq.max_text"],
  ]) {
    await assert.rejects(client.publish("a", body), (error) => {
      assert(error instanceof LimitExceeded);
      assert(error.message.includes(limit), error.message);
      return true;
    });
  }
  const publishing = client.publish("a", "\u20ac".repeat(600));
  const call = await end.call();
  end.answer(call.id, {});
  await publishing;
  assert.equal(client.state, "open");
});

test("long text is an attachment", async (t) => {
  const { client, end } = await connected(t);
  const publishing = client.publish("a", "\u20ac".repeat(65_537));
  const call = await end.call();
  assert.equal(call.args[2], null);
  assert.equal(call.attachments[0].length, 3 * 65_537);
  end.answer(call.id, {});
  await publishing;
});

test("bodies are text, bytes or JSON", async (t) => {
  const { client, end } = await connected(t);
  for (const [body, text, attachments] of [
    ["on", "on", []],
    [{ a: [1] }, '{"a":[1]}', []],
    [21.5, "21.5", []],
    [bytes(1, 2), null, [bytes(1, 2)]],
    [new Uint16Array([513]), null, [bytes(1, 2)]],
    [bytes(3).buffer, null, [bytes(3)]],
  ]) {
    const publishing = client.publish("a/b", body, { retain: true });
    const call = await end.call();
    assert.deepEqual(call.args, ["publish", "a/b", text, { retain: true }]);
    assert.deepEqual(call.attachments.map((each) => bytes(...each)), attachments);
    end.answer(call.id, { published: 1 });
    await publishing;
  }
  await assert.rejects(client.publish("a", () => 0), BadArgument);
  await assert.rejects(client.publish("a", undefined), BadArgument);
  const circle = {};
  circle.of = circle;
  await assert.rejects(client.publish("a", circle), BadArgument);
  await assert.rejects(client.publish("a", 5n), BadArgument);
  await assert.rejects(client.list(/** @type {any} */ ("toString")).next(), BadArgument);
  await client.close();
});

test("a call has text or bytes for an answer, or a reason why not", async (t) => {
  const { client, end } = await connected(t);
  const asked = ["one", bytes(9), "three", "four"].map((body) => client.call("board", body));
  const calls = [await end.call(), await end.call(), await end.call(), await end.call()];
  assert.deepEqual(calls[1].attachments, [bytes(9)]);
  // In any order.
  end.peer.fail(calls[2].id, new CallFailed("nobody is there", 7));
  end.answer(calls[1].id, { attachment: true }, [bytes(7)]);
  end.answer(calls[3].id, { attachment: true }, [new AttachmentError("gone")]);
  end.answer(calls[0].id, { answer: "first" });
  assert.equal(await asked[0], "first");
  assert.deepEqual(await asked[1], bytes(7));
  await assert.rejects(asked[2], { name: "CallFailed", code: 7, message: "nobody is there" });
  await assert.rejects(asked[3], { name: "AttachmentError", message: "gone" });
  await client.close();
});

test("an answer that does not come in time", async (t) => {
  const { client, end } = await connected(t, { timeoutMs: 20 });
  const unanswered = client.method("stats");
  const late = await end.call();
  t.mock.timers.tick(19);
  t.mock.timers.tick(1);
  await assert.rejects(unanswered, TimedOut);
  end.answer(late.id, { stats: {} }); // it is ignored
  const asked = client.method("stats", [], { timeoutMs: 10_000 });
  const call = await end.call();
  end.answer(call.id, { stats: { a: 1 } });
  assert.deepEqual(await asked, { stats: { a: 1 } });
  await client.close();
});

test("publications are read one by one, or told as they come", async (t) => {
  const { client, end } = await connected(t);
  const told = [];
  const one = await subscribed(client, end, "a/*");
  const two = await subscribed(
    client,
    end,
    "b",
    { everyMs: 100, binary: true, retained: false },
    (each) => told.push(each),
  );
  assert.deepEqual(one.args.slice(0, 2), ["subscribe", "a/*"]);
  assert.deepEqual(two.args[3], { every_ms: 100, binary: true, retained: false });
  const list = [
    { dropped: 3 },
    { topic: "a/1", at: 5, text: "x", retained: true, properties: { k: "v" } },
    { topic: "a/2", at: null, attachment: true },
    { topic: "a/3", at: 6, text: "[1]", replaced: 2 },
    { topic: "a/4", at: 6, attachment: true },
  ];
  update(end, one.topic, list, [bytes(255), new AttachmentError("lost")]);
  update(end, two.topic, [{ topic: "b", at: 7, attachment: true }], [bytes(104, 105)]);
  const read = [];
  for await (const publication of one.subscription) {
    read.push(publication);
    if (read.length === 4) {
      break;
    }
  }
  assert.deepEqual(
    read.map((each) => [each.topic, each.at, each.payload, each.retained, each.replaced]),
    [
      ["a/1", 5, "x", true, 0],
      ["a/2", null, bytes(255), false, 0],
      ["a/3", 6, "[1]", false, 2],
      ["a/4", 6, "", false, 0],
    ],
  );
  assert.deepEqual(read[0].properties, { k: "v" });
  assert.equal(read[1].text, null);
  assert.deepEqual(read[2].json(), [1]);
  assert.deepEqual(read[2].bytes, bytes(91, 49, 93));
  assert.equal(read[3].error?.message, "lost");
  assert.equal(one.subscription.dropped, 3);
  assert(one.subscription.ended); // the loop was left
  assert.equal((await end.event("topicUnsubscribed")).topic, one.topic);
  assert.equal(told.length, 1);
  assert.equal(told[0].publications[0].text, "hi");
  await client.close();
  await two.subscription.closed;
});

test("what nobody reads is dropped, the oldest first", async (t) => {
  const { client, end } = await connected(t, { limits: { maxUnread: 3 } });
  const { subscription, topic } = await subscribed(client, end, "a");
  for (let number = 0; number < 5; number += 1) {
    update(end, topic, [{ topic: "a", at: 0, text: String(number) }]);
  }
  end.peer.closeTopic(topic);
  end.flush();
  const read = [];
  for await (const each of subscription) {
    read.push(each.text);
  }
  assert.deepEqual(read, ["2", "3", "4"]);
  assert.equal(subscription.dropped, 2);
  await client.close();
});

test("a refused subscription", async (t) => {
  const { client, end } = await connected(t);
  const coming = client.subscribe("secret");
  const call = await end.call();
  end.peer.fail(call.id, new CallFailed("not allowed", 1));
  end.flush();
  await assert.rejects(coming, { name: "CallFailed", code: 1 });
  await client.close();
});

test("subscriptions and attributes outlive a connection, calls do not", async (t) => {
  const states = [];
  const { client, end, listener } = await connected(t, {
    attributes: { name: "test" },
    onState: (state) => states.push(state),
  });
  assert.equal((await end.event("attributeSet")).value, "test");
  client.setAttribute("more", "1");
  client.setAttribute("less", "2");
  client.unsetAttribute("less");
  await end.event("attributeUnset");
  const told = [];
  const { subscription } = await subscribed(client, end, "a", {}, (each) => told.push(each));
  const asked = client.method("stats");
  await end.call();
  listener.isDown = true;
  end.drop();
  await assert.rejects(asked, ConnectionLost);
  await nextAttempt(t, listener);
  await nextAttempt(t, listener);
  assert.notEqual(client.error, null);
  listener.isDown = false;
  await nextAttempt(t, listener);
  const waiting = client.method("stats"); // waits for the connection
  const again = await listener.next();
  await again.accept();
  assert.equal((await again.event("attributeSet")).name, "name");
  assert.equal((await again.event("attributeSet")).name, "more");
  const call = await again.call();
  assert.deepEqual(call.args.slice(0, 2), ["subscribe", "a"]);
  again.peer.openTopic(call.args[2]);
  again.answer(call.id, { subscribed: "a" });
  update(again, call.args[2], [{ topic: "a", at: 1, text: "x" }]);
  const stats = await again.call();
  again.answer(stats.id, { stats: 1 });
  assert.deepEqual(await waiting, { stats: 1 });
  assert.deepEqual(
    told.map((each) => [each.resumed, each.publications.length]),
    [
      [true, 0], // before what came after the gap
      [false, 1],
    ],
  );
  assert.equal(subscription.resumed, 1);
  assert.equal(client.connections, 2);
  assert(states.includes("waiting") && states.at(-1) === "open");
  await client.close();
});

test("who closes when told of an end has closed", async (t) => {
  for (const how of ["onEnded", "onState"]) {
    await t.test(how, async (t) => {
      const { client, end, listener } = await connected(t, {
        onState: (state) => how === "onState" && state === "waiting" && client.close(),
      });
      const topic = client.openTopic(end.peer.openSubscription());
      topic.onEnded = () => how === "onEnded" && client.close();
      end.drop();
      await turn();
      assert.equal(client.state, "closed");
      t.mock.timers.tick(100_000);
      await turn();
      assert.equal(listener.attempts, 1);
    });
  }
});

test("no deadline at all", async (t) => {
  const { client, end } = await connected(t, { timeoutMs: Infinity });
  const asked = client.method("stats");
  const call = await end.call();
  t.mock.timers.tick(10_000_000);
  end.answer(call.id, { stats: 1 });
  assert.deepEqual(await asked, { stats: 1 });
});

test("without reconnecting a loss is the end", async (t) => {
  const { client, end } = await connected(t, { reconnect: false });
  const { subscription } = await subscribed(client, end, "a");
  const reading = subscription.next();
  end.drop();
  await assert.rejects(reading, ConnectionLost);
  assert.equal(client.state, "closed");
  await assert.rejects(client.publish("a", "x"), ConnectionLost);
  await assert.rejects(client.ready(), ConnectionLost);
});

test("a broker that says nothing any more is given up", async (t) => {
  const { client, end, listener } = await connected(t, { heartbeatMs: 1000 });
  t.mock.timers.tick(1000); // the welcome was heard
  assert.equal(end.events.length, 0);
  t.mock.timers.tick(1000);
  const first = await end.call();
  assert.deepEqual(first.args, ["ping"]);
  end.peer.fail(first.id, new CallFailed("whom?", 3)); // it is there
  end.flush();
  t.mock.timers.tick(1000);
  t.mock.timers.tick(1000);
  await end.call();
  assert.equal(client.state, "open");
  t.mock.timers.tick(1000); // no answer to that
  assert.equal(client.state, "waiting");
  assert.equal((await end.event("closed")).error.code, 8);
  await nextAttempt(t, listener);
  const again = await listener.next();
  await again.accept();
  await client.ready();
  assert.equal(client.connections, 2);
  await client.close();
});

test("no welcome", async (t) => {
  const listener = listening(t);
  const how = { WebSocket: listener.WebSocket, timeoutMs: 20, reconnect: false };
  const connecting = connect("umq://broker", how);
  const end = await listener.next();
  await end.event("hello");
  t.mock.timers.tick(20);
  await assert.rejects(connecting, TimedOut);
  await end.event("gone");
});

test("the peer calls us", async (t) => {
  const { client, end } = await connected(t, {
    onCall: async ({ payload, attachments }) => {
      if (payload === "bad") {
        throw new CallFailed("I'm a teapot", 418);
      }
      if (payload === "worse") {
        throw new Error("broken");
      }
      return payload === "bytes" ? attachments[0] : { echo: payload };
    },
  });
  const ask = async (type, payload, ...attachments) => {
    const id = end.peer.call(payload, attachments);
    end.flush();
    const event = await end.event(type);
    assert.equal(event.id, id);
    return event;
  };
  assert.equal((await ask("result", "x")).payload, '{"echo":"x"}');
  assert.deepEqual((await ask("result", "bytes", bytes(5))).attachments, [bytes(5)]);
  const bad = await ask("failure", "bad");
  assert.deepEqual([bad.code, bad.text], [418, "I'm a teapot"]);
  assert.equal((await ask("failure", "worse")).text, "broken");
  await client.close();
  t.mock.timers.reset();
  const other = await connected(t);
  other.end.peer.call("x");
  other.end.flush();
  assert.equal((await other.end.event("failure")).code, 6);
  await other.client.close();
});

test("callbacks are for once", async (t) => {
  const { client, end } = await connected(t);
  const id = client.registerCallback(({ payload }) => `did ${payload}`);
  end.peer.callBack(id, "work");
  end.peer.callBack(id, "more");
  end.flush();
  assert.equal((await end.event("result")).payload, "did work");
  assert.equal((await end.event("failure")).code, 2);
  await client.close();
});

test("we call back", async (t) => {
  const { client, end } = await connected(t);
  const id = end.peer.registerCallback();
  const asked = client.callBack(id, "done: 5", { attachments: [bytes(1)] });
  const event = await end.event("callback");
  assert.deepEqual([event.payload, event.attachments], ["done: 5", [bytes(1)]]);
  end.peer.result(event.id, "thank you");
  end.flush();
  assert.equal((await asked).payload, "thank you");
  await client.close();
});

test("the peer subscribes here", async (t) => {
  const { client, end } = await connected(t);
  const id = end.peer.openSubscription();
  const topic = client.openTopic(id);
  assert(topic.update("one", [bytes(1)]));
  assert.equal((await end.event("update")).payload, "one");
  let ended = 0;
  topic.onEnded = () => {
    ended += 1;
  };
  end.peer.unsubscribe(id);
  end.flush();
  assert.equal((await end.event("topicClosed")).topic, id);
  assert.equal(ended, 1);
  assert(!topic.update("two"));
  const other = client.openTopic(end.peer.openSubscription());
  other.close();
  await end.event("topicClosed");
  await client.close();
});

test("too much that waits for the network is refused", async (t) => {
  const { client, end } = await connected(t, { limits: { maxBufferedBytes: 10 } });
  end.waitingBytes = 11;
  await assert.rejects(client.publish("a", "b"), LimitExceeded);
  assert.throws(() => client.setAttribute("a", "b"), LimitExceeded);
  end.waitingBytes = 10;
  const publishing = client.publish("a", "c");
  const call = await end.call();
  assert.equal(call.args[2], "c"); // nothing was sent of the other one
  end.answer(call.id, { published: 1 });
  await publishing;
  await client.close();
});

test("more calls than the peer shall have wait, in order", async (t) => {
  const { client, end } = await connected(t, { limits: { maxPendingCalls: 2 } });
  const asked = Array.from({ length: 50 }, (_, number) => client.publish("a", number));
  const order = [];
  while (order.length < 50) {
    assert(end.events.filter((each) => each.type === "call").length <= 2);
    const { id, args } = await end.call();
    order.push(args[2]);
    end.answer(id, { published: 1 });
  }
  await Promise.all(asked);
  assert.deepEqual(order, Array.from({ length: 50 }, (_, number) => String(number)));
});

test("what waits to be sent is bounded, and its deadline is that of the call", async (t) => {
  const limits = { maxPendingCalls: 1, maxBufferedBytes: 100 };
  const { client, end } = await connected(t, { limits });
  await assert.rejects(client.request("x", { attachments: ["text"] }), BadArgument);
  const first = client.publish("a", "1", { timeoutMs: 50 });
  // With this one it is above the limit, but nothing waited before.
  const second = client.publish("a", bytes(...Array(80)), { timeoutMs: 100 });
  await assert.rejects(client.publish("a", "3"), LimitExceeded);
  t.mock.timers.tick(50);
  await assert.rejects(first, TimedOut);
  t.mock.timers.tick(50);
  await assert.rejects(second, TimedOut);
  const third = client.publish("a", "3"); // there is room again
  assert.equal((await end.call()).args[2], "1");
  assert.equal((await end.call()).args[2], null); // when the first was given up
  const { id, args } = await end.call();
  assert.equal(args[2], "3");
  end.answer(id, {});
  await third;
});

test("many subscriptions outlive a connection, whatever may be asked at once", async (t) => {
  const { client, end, listener } = await connected(t, { limits: { maxPendingCalls: 2 } });
  const subscriptions = [];
  for (const pattern of ["a", "b", "c", "d", "e"]) {
    subscriptions.push((await subscribed(client, end, pattern)).subscription);
  }
  end.drop();
  await nextAttempt(t, listener);
  const again = await listener.next();
  await again.accept();
  // One that is left before the broker has heard of it again.
  await turn();
  await subscriptions[4].unsubscribe();
  const patterns = [];
  for (let number = 0; number < 4; number += 1) {
    const { id, args } = await again.call();
    patterns.push(args[1]);
    again.peer.openTopic(args[2]);
    again.answer(id, {});
  }
  assert.deepEqual(patterns, ["a", "b", "c", "d"]);
  await turn();
  assert.deepEqual(subscriptions.map((each) => each.resumed), [1, 1, 1, 1, 0]);
  assert.deepEqual(subscriptions.map((each) => each.ended), [false, false, false, false, true]);
});

test("a subscription that is refused on a later connection ends, and says why", async (t) => {
  const { client, end, listener } = await connected(t);
  const { subscription } = await subscribed(client, end, "a");
  const other = (await subscribed(client, end, "b")).subscription;
  end.drop();
  await nextAttempt(t, listener);
  const again = await listener.next();
  await again.accept();
  const [first, second] = [await again.call(), await again.call()];
  again.peer.fail(first.id, new CallFailed("you may not", 1));
  again.peer.fail(second.id, new CallFailed("the broker is stopping", 8));
  again.flush();
  await subscription.closed;
  assert.equal(subscription.error.code, 1);
  await assert.rejects(subscription.next(), { name: "CallFailed" });
  // Not now is not never: it is tried again.
  await again.event("closed");
  await nextAttempt(t, listener);
  const third = await listener.next();
  await third.accept();
  const { id, args } = await third.call();
  assert.equal(args[1], "b");
  third.answer(id, {});
  await turn();
  assert.equal(other.resumed, 1);
});

test("a refusal of what was said later is no refusal of who we are", async (t) => {
  const { client, end, listener } = await connected(t);
  end.peer.fatal(1, "umq.max_text: too long");
  end.flush();
  assert.equal(client.state, "waiting");
  await nextAttempt(t, listener);
  await (await listener.next()).accept();
  await client.ready();
  assert.equal(client.connections, 2);
});

test("a program that throws, or closes in the middle, disturbs nothing here", async (t) => {
  const thrown = [];
  const before = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", (error) => thrown.push(error.message));
  t.after(() => {
    process.removeAllListeners("uncaughtException");
    before.forEach((each) => process.on("uncaughtException", each));
  });
  const { client, end } = await connected(t);
  const heard = [];
  const { topic } = await subscribed(client, end, "a", {}, (told) => {
    heard.push(told.publications[0].text);
    throw new Error(`mine ${heard.length}`);
  });
  update(end, topic, [{ topic: "a", at: 1, text: "1" }]);
  update(end, topic, [{ topic: "a", at: 1, text: "2" }]);
  await turn();
  assert.deepEqual(heard, ["1", "2"]);
  assert.deepEqual(thrown, ["mine 1", "mine 2"]);

  const listener = new Listener();
  let closing;
  const closed = new Client("umq://broker", {
    WebSocket: listener.WebSocket,
    onState: (state) => {
      if (state === "open") {
        closing = closed.close();
      }
    },
  });
  const other = await listener.next();
  await other.accept();
  await closing;
  assert.equal(closed.state, "closed");
  assert.deepEqual(thrown, ["mine 1", "mine 2"]);
});

/** Whatever a broker says, in any order: nothing is thrown, nothing is left hanging. */
test("a broker that says anything", async (t) => {
  const thrown = [];
  const note = (error) => thrown.push(error);
  process.on("unhandledRejection", note);
  t.after(() => process.off("unhandledRejection", note));
  const listener = listening(t);
  let lost = 0;
  for (let seed = 1; seed <= 200; seed += 1) {
    const random = new Random(seed);
    const client = new Client("umq://broker", {
      WebSocket: listener.WebSocket,
      limits: { maxPendingCalls: 3 },
      onCall: ({ payload }) => (random.below(2) === 0 ? payload : Promise.reject(new Error("no"))),
    });
    const end = await listener.next();
    await end.accept();
    await client.ready();
    const { topic, subscription } = await subscribed(client, end, "a");
    const asked = [
      client.publish("a", bytes(1)),
      client.call("b", "x"),
      client.method("stats"),
      client.history("a"),
      client.subscribe("b"),
      client.ping(),
    ].map((each) => each.then(() => "done", (error) => error));
    client.registerCallback(() => undefined);
    await turn();
    const said = [
      "R2:{}", "R3:{\"answer\":5}", "A1:R4:{}", "E5:3 no", "R6:[]", "R7:null", "R2:5", "!3:6 no",
      `T${topic}:[]`, `T${topic}:[{"topic":"a","at":1,"text":"x"}]`, `T${topic}:[null]`, `T${topic}:5`,
      `A1:T${topic}:[{"topic":"a","attachment":true},{"topic":"a","attachment":true}]`, `D${topic}:`,
      "C1:x", "C2:y", "A2:C3:z", "B4:1:x", "S:a=b", "A1:S:a=c", "X:a", "-:gone", "-:", "U5:", "T77:x",
    ];
    for (let count = 0; count < 25; count += 1) {
      end.send(random.below(4) === 0 ? random.bytes(random.below(5)) : random.pick(said));
      if (random.below(3) === 0) {
        await turn();
      }
    }
    lost += client.state === "open" ? 0 : 1;
    await client.close();
    for (const each of await Promise.all(asked)) {
      assert(each === "done" || each instanceof UmqError, `seed ${seed}: ${each}`);
    }
    await subscription.closed;
    while ((await subscription.next().catch(() => null)) !== null);
  }
  assert.deepEqual(thrown, []);
  assert(lost > 20 && lost < 180, `${lost} of 200 connections were ended`);
});

test("what is no JSON ends the connection, and the program goes on", async (t) => {
  const { client, end, listener } = await connected(t);
  const asked = client.method("stats");
  const call = await end.call();
  end.peer.result(call.id, "{");
  end.flush();
  await assert.rejects(asked, /is no MoteMQ broker/);
  assert.equal((await end.event("closed")).error.code, 3);
  await nextAttempt(t, listener);
  const again = await listener.next();
  await again.accept();
  const coming = client.subscribe("a");
  const { id, args } = await again.call();
  again.peer.openTopic(args[2]);
  again.answer(id, {});
  await coming;
  again.peer.update(args[2], "[[]");
  again.flush();
  await again.event("closed");
  await client.close();
});

test("lists come page by page", async (t) => {
  const { client, end } = await connected(t);
  const reading = (async () => {
    const names = [];
    for await (const { topic } of client.list("topics", { prefix: "a", limit: 2 })) {
      names.push(topic);
    }
    return names;
  })();
  const first = await end.call();
  assert.deepEqual(first.args, ["topics", { prefix: "a", after: "", limit: 2 }]);
  end.answer(first.id, { topics: [{ topic: "a1" }, { topic: "a2" }], more: true });
  const second = await end.call();
  assert.equal(second.args[1].after, "a2");
  end.answer(second.id, { topics: [{ topic: "a3" }], more: false });
  assert.deepEqual(await reading, ["a1", "a2", "a3"]);
  await client.close();
});
