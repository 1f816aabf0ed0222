// The client and a real broker. MOTEMQ_URL says where it is; tests/client_js starts it, with a LightMQ
// client called MOTEMQ_BOARD that answers what it is asked backwards.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";

import { CallFailed, Client, Refused, connect } from "../../umq.js";

const URL = process.env.MOTEMQ_URL;
const BOARD = process.env.MOTEMQ_BOARD;
const TOKEN = process.env.MOTEMQ_TOKEN;
const all = new Uint8Array(256).map((_, index) => index);

async function connected(t, options = {}) {
  const client = await connect(URL, { token: TOKEN, ...options });
  t.after(() => client.close());
  return client;
}

/** Return so many publications of a subscription. */
async function take(subscription, count) {
  const taken = [];
  for (let left = count; left > 0; left -= 1) {
    taken.push(await subscription.next());
  }
  return taken;
}

test("who is there", async (t) => {
  const client = await connected(t, { attributes: { name: "a page" } });
  assert.match(client.welcome.broker, /^MoteMQ \d/);
  const seen = [];
  for await (const each of client.list("clients", { limit: 1 })) {
    seen.push(each);
  }
  const self = seen.find((each) => each.client === "a page");
  assert.equal(self?.protocol, "umq");
  assert(self.received > 0);
});

test("text, JSON and bytes, there and back", async (t) => {
  const client = await connected(t);
  const subscription = await client.subscribe("js/bodies/*");
  const bodies = [
    "on",
    "ž — \u{1f600} \0 \n\"\\",
    { deep: [1, null, { a: "b" }] },
    21.5,
    all,
    new Uint8Array([0xff, 0xfe]),
    new TextEncoder().encode("text as bytes"),
  ];
  for (const [number, body] of bodies.entries()) {
    await client.publish(`js/bodies/${number}`, body);
  }
  const came = await take(subscription, bodies.length);
  assert.deepEqual(came.map((each) => each.topic), bodies.map((_, at) => `js/bodies/${at}`));
  assert.equal(came[0].payload, bodies[0]);
  assert.equal(came[1].payload, bodies[1]);
  assert.deepEqual(came[2].json(), bodies[2]);
  assert.equal(came[3].json(), 21.5);
  assert.deepEqual(came[4].bytes, all);
  assert.equal(came[4].text, null);
  assert.deepEqual(came[5].payload, bodies[5]);
  assert.equal(came[6].payload, "text as bytes");
  assert(Math.abs(came[0].at - Date.now()) < 600_000);
});

test("always as bytes, where that is asked for", async (t) => {
  const client = await connected(t);
  const subscription = await client.subscribe("js/binary", { binary: true });
  await client.publish("js/binary", "hi");
  const [publication] = await take(subscription, 1);
  assert.deepEqual(publication.payload, new Uint8Array([104, 105]));
  assert.equal(publication.text, "hi");
});

test("what is retained comes first, with its properties", async (t) => {
  const client = await connected(t);
  await client.publish("js/kept", "old", { retain: true, properties: { unit: "°C" } });
  const subscription = await client.subscribe("js/kept");
  const [kept] = await take(subscription, 1);
  assert.deepEqual([kept.payload, kept.retained, kept.properties], ["old", true, { unit: "°C" }]);
  const without = await client.subscribe("js/kept", { retained: false });
  await client.publish("js/kept", "new");
  const [live] = await take(without, 1);
  assert.deepEqual([live.payload, live.retained], ["new", false]);
  const found = [];
  for await (const each of client.list("retained", { prefix: "js/kept" })) {
    found.push([each.topic, each.text]);
  }
  assert.deepEqual(found, [["js/kept", "old"]]);
  await client.publish("js/kept", "", { retain: true });
});

test("only the last of each topic, and how many it replaces", async (t) => {
  const client = await connected(t);
  const subscription = await client.subscribe("js/fast/*", { everyMs: 200 });
  const count = 50;
  for (let number = 1; number <= count; number += 1) {
    await client.publish("js/fast/a", String(number));
  }
  let told = 0;
  let last = "";
  while (last !== String(count)) {
    const publication = await subscription.next();
    told += 1 + publication.replaced;
    last = publication.payload;
  }
  assert.equal(told, count);
});

test("wildcards", async (t) => {
  const client = await connected(t);
  const told = [];
  const subscription = await client.subscribe("js/tree/**", {}, (update) => {
    told.push(...update.publications.map((each) => each.topic));
  });
  const witness = await client.subscribe("js/end");
  for (const topic of ["js/tree", "js/tree/a", "js/tree/a/b/c", "js/other", "js/end"]) {
    await client.publish(topic, "x");
  }
  await take(witness, 1);
  await subscription.unsubscribe();
  assert.deepEqual(told, ["js/tree", "js/tree/a", "js/tree/a/b/c"]);
});

test("nothing comes behind the end of a subscription", async (t) => {
  const client = await connected(t);
  const told = [];
  const subscription = await client.subscribe("js/left", {}, (update) => told.push(update));
  await subscription.unsubscribe();
  assert(subscription.ended);
  const witness = await client.subscribe("js/left");
  await client.publish("js/left", "x");
  await take(witness, 1);
  assert.deepEqual(told, []);
});

test("a board is called, with text and with bytes", async (t) => {
  const client = await connected(t);
  assert.equal(await client.call(BOARD, "abc"), "cba");
  assert.deepEqual(await client.call(BOARD, new Uint8Array([1, 255])), new Uint8Array([255, 1]));
  const answers = await Promise.all(["ab", "cd", "ef"].map((each) => client.call(BOARD, each)));
  assert.deepEqual(answers, ["ba", "dc", "fe"]);
  await assert.rejects(client.call("nobody", "x"), (error) => {
    return error instanceof CallFailed && error.code === 7 && error.message.includes("nobody");
  });
});

test("round trips", async (t) => {
  const client = await connected(t);
  assert((await client.ping()) > 0);
  assert((await client.ping(BOARD)) > 0);
  await assert.rejects(client.ping("nobody"), { name: "CallFailed", code: 7 });
});

test("history", async (t) => {
  const client = await connected(t);
  for (const body of ["1", "2", all, "4"]) {
    await client.publish("js/past", body);
  }
  const { publications, source, more } = await client.history("js/past", { last: 3 });
  assert.deepEqual(publications.map((each) => each.payload), ["2", all, "4"]);
  assert.equal(more, true); // there is one before them
  assert(["journal", "memory"].includes(source));
  const raw = await client.method("history", ["js/past", { last: 2 }]);
  assert.deepEqual(raw.publications[0].bytes, all);
});

test("what the broker knows", async (t) => {
  const client = await connected(t);
  await client.publish("js/known", "x");
  const topics = [];
  for await (const { topic } of client.list("topics", { prefix: "js/k", limit: 1 })) {
    topics.push(topic);
  }
  assert(topics.includes("js/known"), String(topics));
  assert((await client.method("stats")).stats.up_s >= 0);
  assert("journal" in (await client.method("journal")));
  for (const name of ["queues", "wills"]) {
    for await (const item of client.list(name)) {
      assert(item);
    }
  }
  assert(Array.isArray((await client.method("alerts")).alerts));
});

test("what it refuses, it says", async (t) => {
  const client = await connected(t);
  await assert.rejects(client.method("nonsense"), { name: "CallFailed", code: 4 });
  await assert.rejects(client.publish("", "x"), { name: "CallFailed", code: 3 });
  await assert.rejects(client.subscribe("a/**/b"), { name: "CallFailed", code: 3 });
  await assert.rejects(client.request("no JSON"), { name: "CallFailed", code: 3 });
  await assert.rejects(client.callBack("1", "x"), { name: "CallFailed", code: 2 });
  await client.publish("js/still", "here");
});

test("many at once", async (t) => {
  const client = await connected(t);
  const subscription = await client.subscribe("js/many");
  const count = 2000;
  const publish = async () => {
    for (let sent = 0; sent < count; sent += 200) {
      const some = Array.from({ length: 200 }, (_, at) => client.publish("js/many", `${sent + at}`));
      await Promise.all(some);
    }
  };
  const [came] = await Promise.all([take(subscription, count), publish()]);
  assert.deepEqual(came.map((each) => each.payload), Array.from({ length: count }, (_, at) => `${at}`));
  assert.equal(subscription.dropped, 0);
});

test("a broker that is not there", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `umq://127.0.0.1:${server.address().port}`;
  server.close();
  await once(server, "close");
  let client;
  await new Promise((resolve) => {
    client = new Client(url, { onState: (state) => state === "waiting" && resolve() });
  });
  await assert.rejects(client.ready(1), { name: "TimedOut" });
  await client.close();
  await assert.rejects(connect(url, { reconnect: false }), { name: "ConnectionLost" });
});

test("who is not let in", async () => {
  if (TOKEN === undefined) {
    return; // everybody is
  }
  await assert.rejects(connect(URL, { token: "wrong" }), (error) => {
    return error instanceof Refused && error.code === 1;
  });
});
