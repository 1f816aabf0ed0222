// A WebSocket whose other end is a `Peer` in the same process: no network, so every order and every
// loss can be had on purpose.

import { Peer } from "../umq.js";

const OPEN = 1;
const CLOSED = 3;

/** The other end of one connection, as a test plays it. */
export class ServerEnd {
  /** @type {import("../umq.js").Event[]} */
  events = [];
  peer = new Peer("server");

  #socket;
  #waiting = [];

  constructor(socket) {
    this.#socket = socket;
  }

  /** Return the next event of that type; those of other types wait. */
  async event(type) {
    for (;;) {
      const position = this.events.findIndex((each) => each.type === type);
      if (position >= 0) {
        return this.events.splice(position, 1)[0];
      }
      await new Promise((resolve) => this.#waiting.push(resolve));
    }
  }

  /** Accept the hello. */
  async accept(payload = '{"broker": "MoteMQ 0"}') {
    const hello = await this.event("hello");
    this.peer.welcome(payload);
    this.flush();
    return hello;
  }

  /** Return the next call, read as JSON, with its id and attachments. */
  async call() {
    const { id, payload, attachments } = await this.event("call");
    return { id, args: JSON.parse(payload), attachments };
  }

  answer(id, value, attachments = []) {
    this.peer.result(id, JSON.stringify(value), attachments);
    this.flush();
  }

  /** Send what the peer has to send. */
  flush() {
    for (const each of this.peer.takeOutput()) {
      this.send(each);
    }
  }

  /** Send anything, also what no peer would. */
  send(data) {
    this.#socket.deliver(typeof data === "string" ? data : data.slice().buffer);
  }

  /** Say that so many bytes of the client wait for the network. */
  set waitingBytes(count) {
    this.#socket.bufferedAmount = count;
  }

  /** The connection is gone. */
  drop(code = 1006) {
    this.#socket.ends(code);
  }

  received(data) {
    const events =
      typeof data === "string" ? this.peer.receiveText(data) : this.peer.receiveBinary(data);
    this.flush();
    this.happened(events);
  }

  happened(events) {
    this.events.push(...events);
    const waiting = this.#waiting;
    this.#waiting = [];
    waiting.forEach((resolve) => resolve());
  }
}

/** Where clients of one test connect to. */
export class Listener {
  /** Whether connections are refused. */
  isDown = false;
  attempts = 0;

  #ends = [];
  #waiting = [];

  constructor() {
    const listener = this;
    this.WebSocket = class {
      readyState = 0;
      bufferedAmount = 0;
      binaryType = "blob";

      constructor(url) {
        this.url = url;
        this.end = new ServerEnd(this);
        listener.attempts += 1;
        setImmediate(() => {
          if (listener.isDown) {
            this.readyState = CLOSED;
            this.onerror?.({}); // and no close, as in Node 20
            return;
          }
          if (this.readyState !== 0) {
            return;
          }
          this.readyState = OPEN;
          listener.#ends.push(this.end);
          listener.#waiting.splice(0).forEach((resolve) => resolve());
          this.onopen?.();
        });
      }

      send(data) {
        if (this.readyState === OPEN) {
          this.end.received(data);
        }
      }

      close(code) {
        if (this.readyState !== CLOSED) {
          setImmediate(() => this.ends(code));
        }
      }

      deliver(data) {
        if (this.readyState === OPEN) {
          this.onmessage?.({ data });
        }
      }

      ends(code) {
        if (this.readyState !== CLOSED) {
          this.readyState = CLOSED;
          this.end.happened([{ type: "gone", code }]);
          this.onclose?.({ code, reason: "" });
        }
      }
    };
  }

  /** Return the other end of the next connection. */
  async next() {
    while (this.#ends.length === 0) {
      await new Promise((resolve) => this.#waiting.push(resolve));
    }
    return this.#ends.shift();
  }
}
