/**
 * UMQ for browsers and Node: a client of a MoteMQ broker, and of any other peer that speaks UMQ.
 *
 * Three parts, each on the one before it:
 *
 * - the codec, `parse` and `spell`: one text message to a `Message` and back;
 * - `Peer`, one side of a connection without a socket or a clock: texts and binaries go in, events
 *   come out, and what is to be sent is taken from it;
 * - `Client`, which `connect` makes: a WebSocket that is replaced when it is lost, subscriptions
 *   that outlive it, and the broker's methods.
 *
 * R and A numbers are those of host_broker/protocols/umq/NOTES.md. One file without dependencies,
 * so that a page can load it as it is; that is why it is so long.
 *
 * @module
 */

/** The version of UMQ that is spoken here. */
export const VERSION = 1;

/** The port of umq:// and umqs:// addresses that name none. */
export const DEFAULT_PORT = 8765;

/** Codes of `F` and of a broker's `E` (A13). */
export const Code = Object.freeze({
  REJECTED: 1,
  NO_CALLBACK: 2,
  PROTOCOL_ERROR: 3,
  UNSUPPORTED_COMMAND: 4,
  UNSUPPORTED_VERSION: 5,
  NOT_RPC_SERVER: 6,
  NO_ROUTE: 7,
  UNAVAILABLE: 8,
});

/**
 * What a peer may make us hold. Lengths of text are those of JavaScript strings.
 *
 * @typedef {object} Limits
 * @property {number} maxTextLength of one text message
 * @property {number} maxAttachmentBytes of one binary message
 * @property {number} maxAttachments that one message may announce
 * @property {number} maxHeldBytes of messages whose attachments have not all come, with those that
 *   have
 * @property {number} maxHeldMessages that wait for attachments, or behind such a message
 * @property {number} maxIdDigits of an id (A4)
 * @property {number} maxPendingCalls each way: those we have not answered, those we await; more of
 *   ours wait until some are answered
 * @property {number} maxTopics each way: those we subscribe to, those we publish
 * @property {number} maxCallbacks that wait to be called
 * @property {number} maxAttributes that the peer may set
 * @property {number} maxAttributeBytes of all of them, with names and attachments
 * @property {number} maxBufferedBytes that wait for the network, or to be sent; then sending is
 *   refused
 * @property {number} maxUnread publications of a subscription that nobody has read; then the oldest
 *   are dropped and counted
 */

/** @type {Readonly<Limits>} */
export const DEFAULT_LIMITS = Object.freeze({
  maxTextLength: 16 * 1024 * 1024,
  maxAttachmentBytes: 64 * 1024 * 1024,
  maxAttachments: 4096,
  maxHeldBytes: 96 * 1024 * 1024,
  maxHeldMessages: 1024,
  maxIdDigits: 13,
  maxPendingCalls: 256, // as umq.max_calls
  maxTopics: 1024,
  maxCallbacks: 1024,
  maxAttributes: 64,
  maxAttributeBytes: 1024 * 1024,
  maxBufferedBytes: 8 * 1024 * 1024,
  maxUnread: 10_000,
});

// ---- errors ---------------------------------------------------------------------------------

/** Anything that goes wrong between a program and its peer; `message` says what to do. */
export class UmqError extends Error {
  /** @param {string} message @param {ErrorOptions} [options] */
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The caller's mistake: nothing was sent. */
export class BadArgument extends UmqError {}

/** One of `Limits`, or of those in the broker's welcome, would be exceeded: nothing was sent. */
export class LimitExceeded extends UmqError {}

/** There is no connection, or it ended before the answer came. */
export class ConnectionLost extends UmqError {}

/** The answer did not come before the deadline; the connection is still open. */
export class TimedOut extends UmqError {}

/** The peer refused with `F`. `code` is its number, 0 if it gave none. */
export class Refused extends UmqError {
  /** @param {string} message @param {number} code */
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

/** A call was answered with `E`. `code` is the number its text begins with, 0 if there is none. */
export class CallFailed extends UmqError {
  /** @param {string} message @param {number} [code] */
  constructor(message, code = 0) {
    super(message);
    this.code = code;
  }
}

/** An attachment that could not be delivered: the peer's text (R15), or ours to send. */
export class AttachmentError extends UmqError {}

/** What breaks UMQ. `code` is for the `F` that answers it, `rule` the requirement or ambiguity. */
export class Violation extends UmqError {
  /** @param {string} rule @param {string} message @param {number} [code] */
  constructor(rule, message, code = Code.PROTOCOL_ERROR) {
    super(message);
    this.rule = rule;
    this.code = code;
  }
}

// ---- codec ----------------------------------------------------------------------------------

/**
 * One text message. `id` is canonical: base 36, upper case, no leading zeros, "0" for none.
 *
 * @typedef {object} Message
 * @property {string} command one of `-HWFCBRETDUSX`, or `!`, a failed call of a later revision (A14)
 * @property {string} id
 * @property {string} payload
 * @property {number} attachments how many binary messages belong to it
 */

const COMMANDS = "-HWFCBRETDUSX!";
/** What has no attachments, and which requirement says so. @type {ReadonlyMap<string, string>} */
const BARE = new Map([
  ["F", "R14"],
  ["-", "R16"],
  ["E", "R21"],
  ["!", "R21"],
  ["D", "R27"],
  ["U", "R29"],
  ["X", "A11"],
]);
const WITHOUT_ID = "FSX-"; // R35
const DIGITS = /^[0-9A-Z]*$/;

/**
 * Return an id or count in canonical form (A1, A3).
 *
 * @param {string} digits
 * @param {number} maxDigits
 * @param {string} [rule] what is broken if it is none
 * @returns {string}
 */
function canonical(digits, maxDigits, rule = "R2") {
  if (!DIGITS.test(digits)) {
    throw new Violation(rule, `'${shortened(digits)}' is no number in base 36 (0-9 and A-Z)`);
  }
  if (digits.length > maxDigits) {
    const text = `a number has ${digits.length} digits; at most ${maxDigits} are read`;
    throw new Violation(rule === "R2" ? "maxIdDigits" : rule, text);
  }
  return digits.replace(/^0+/, "") || "0";
}

/**
 * Read one text message.
 *
 * @param {string} text
 * @param {Readonly<Limits>} [limits]
 * @returns {Message}
 * @throws {Violation} for what is no message of UMQ
 */
export function parse(text, limits = DEFAULT_LIMITS) {
  if (text.length > limits.maxTextLength) {
    throw exceeded("maxTextLength", `a text message has ${text.length} characters`);
  }
  let rest = text;
  let attachments = 0;
  let separator = separatorOf(rest);
  if (rest[0] === "A") {
    const count = canonical(rest.slice(1, separator), limits.maxIdDigits, "R5");
    attachments = parseInt(count, 36);
    if (attachments > limits.maxAttachments) {
      throw exceeded("maxAttachments", `a message has ${attachments} attachments`);
    }
    rest = rest.slice(separator + 1);
    separator = separatorOf(rest);
    if (rest[0] === "A") {
      throw new Violation("R6", "attachments are announced twice for one message");
    }
  }
  const command = rest.charAt(0);
  if (!COMMANDS.includes(command)) {
    throw new Violation("R1", `'${command}' is no command of UMQ`);
  }
  const id = canonical(rest.slice(1, separator), limits.maxIdDigits);
  const rule = BARE.get(command);
  if (attachments > 0 && rule !== undefined) {
    throw new Violation(rule, `a message ${command} has no attachments`);
  }
  return { command, id, payload: rest.slice(separator + 1), attachments };
}

/**
 * Return where the first colon is.
 *
 * @param {string} text
 * @returns {number}
 */
function separatorOf(text) {
  const separator = text.indexOf(":");
  if (separator < 1) {
    throw new Violation("R1", `'${shortened(text)}' is no message of UMQ: COMMAND ID : PAYLOAD`);
  }
  return separator;
}

/**
 * Write one text message.
 *
 * @param {Message} message
 * @returns {string}
 * @throws {BadArgument} for what cannot be sent as UTF-8
 */
export function spell({ command, id, payload, attachments }) {
  if (LONE_SURROGATE.test(payload)) {
    throw new BadArgument("text with half a surrogate pair cannot be sent; send it as bytes");
  }
  const announced = attachments > 0 ? `A${base36(attachments)}:` : "";
  // As the document's examples: F0:, but -:, S: and X: (A1).
  const spelled = command !== "F" && WITHOUT_ID.includes(command) ? "" : id;
  return `${announced}${command}${spelled}:${payload}`;
}

const LONE_SURROGATE = /\p{Surrogate}/u;
const LONE_SURROGATES = /\p{Surrogate}/gu;

/**
 * Return an error's text as it can be sent, whatever it quotes.
 *
 * @param {string} text
 * @returns {string}
 */
function sendable(text) {
  return text.replace(LONE_SURROGATES, "\ufffd");
}

/**
 * Return a number as an id.
 *
 * @param {number} number
 * @returns {string}
 */
function base36(number) {
  return number.toString(36).toUpperCase();
}

/**
 * Return the error for a peer that exceeds a limit.
 *
 * @param {keyof Limits} limit
 * @param {string} text
 * @returns {Violation}
 */
function exceeded(limit, text) {
  return new Violation(limit, `${limit}: ${text}`, Code.REJECTED);
}

/**
 * @param {string} text
 * @returns {string}
 */
function shortened(text) {
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}

/**
 * Return the code and the text of an error's payload, `<code> <message>` (R12).
 *
 * @param {string} payload
 * @returns {{code: number, text: string}}
 */
function readError(payload) {
  const found = /^(\d{1,9})(?: |$)/.exec(payload);
  if (found === null) {
    return { code: 0, text: payload };
  }
  return { code: Number(found[1]), text: payload.slice(found[0].length) };
}

// ---- one side of a connection -----------------------------------------------------------------

/**
 * An attachment as it came: its bytes, or why there are none.
 *
 * @typedef {Uint8Array | AttachmentError} Attachment
 */

/**
 * What a peer said. `attachments` have all come.
 *
 * @typedef {{type: "hello", version: number, payload: string, attachments: Attachment[]}
 *   | {type: "welcome", version: number, payload: string, attachments: Attachment[]}
 *   | {type: "call", id: string, payload: string, attachments: Attachment[]}
 *   | {type: "callback", id: string, callback: string, payload: string, attachments: Attachment[]}
 *   | {type: "result", id: string, payload: string, attachments: Attachment[]}
 *   | {type: "failure", id: string, code: number, text: string}
 *   | {type: "update", topic: string, payload: string, attachments: Attachment[]}
 *   | {type: "topicClosed", topic: string}
 *   | {type: "topicUnsubscribed", topic: string}
 *   | {type: "attributeSet", name: string, value: string, attachments: Attachment[]}
 *   | {type: "attributeUnset", name: string}
 *   | {type: "closed", error: UmqError, byPeer: boolean}} Event
 */

/**
 * A message that has been read and waits for attachments, or for another one before it.
 *
 * @typedef {object} Held
 * @property {Event | null} event null: nobody is told of it, but its attachments will come
 * @property {Attachment[]} attachments those that have come
 * @property {number} missing
 * @property {string} order messages of one order are told in the order in which they were sent
 * @property {number} bytes
 */

const EVERYTHING = "*"; // the order of what must be told before anything else

/**
 * An attribute that the peer has set.
 *
 * @typedef {{value: string, attachments: Attachment[]}} Attribute
 */

/**
 * One side of a connection, of either role; it knows no socket and no clock.
 *
 * Whoever owns it hands it what comes (`receiveText`, `receiveBinary`), does what the events say,
 * and after each call sends what `takeOutput` returns, in that order. `closing` tells that the
 * connection is to be closed once that is sent.
 */
export class Peer {
  /** @type {"idle" | "waitHello" | "waitWelcome" | "deciding" | "open" | "closed"} */
  state;

  /** Binaries and `-` that nobody announced (A9). */
  strayAttachments = 0;

  /** Attributes that the other side has set for this connection. @type {Map<string, Attribute>} */
  attributes = new Map();

  /** @type {Readonly<Limits>} */
  #limits;
  /** @type {(string | Uint8Array)[]} */
  #output = [];
  /** @type {Held[]} */
  #held = [];
  #heldBytes = 0;
  #attributeBytes = 0;
  #lastId = 0;
  /** Calls of ours without an answer. @type {Set<string>} */
  #asked = new Set();
  /** Calls of the other side that we have not answered. @type {Set<string>} */
  #unanswered = new Set();
  /** Callbacks that the other side may call, once (A16). @type {Set<string>} */
  #callbacks = new Set();
  /** Topics we subscribe to; false: we have sent U and await D. @type {Map<string, boolean>} */
  #subscribed = new Map();
  /** Topics nobody here knows, to which we have said so (A17). @type {Set<string>} */
  #unknown = new Set();
  /** Topics that the other side subscribes to. @type {Set<string>} */
  #published = new Set();

  /**
   * @param {"client" | "server"} role who says H, and who answers it
   * @param {Partial<Limits>} [limits]
   */
  constructor(role, limits = {}) {
    this.#limits = { ...DEFAULT_LIMITS, ...limits };
    this.state = role === "client" ? "idle" : "waitHello";
  }

  /** Whether nothing more will be said, so that the connection is to be closed (R11, A19). */
  get closing() {
    return this.state === "closed";
  }

  /** How many calls of ours have no answer. */
  get pendingCalls() {
    return this.#asked.size;
  }

  /**
   * Return what is to be sent, and forget it: texts as text messages, bytes as binary ones.
   *
   * @returns {(string | Uint8Array)[]}
   */
  takeOutput() {
    const output = this.#output;
    this.#output = [];
    return output;
  }

  // ---- what comes ----

  /**
   * Take one text message.
   *
   * @param {string} text
   * @returns {Event[]}
   */
  receiveText(text) {
    if (this.state === "closed") {
      return [];
    }
    try {
      return this.#take(parse(text, this.#limits), text.length);
    } catch (error) {
      return [this.#broken(error)];
    }
  }

  /**
   * Take one binary message: the next attachment (R5, A10).
   *
   * @param {Uint8Array} bytes it is kept, not copied
   * @returns {Event[]}
   */
  receiveBinary(bytes) {
    if (this.state === "closed") {
      return [];
    }
    if (bytes.length > this.#limits.maxAttachmentBytes) {
      const text = `an attachment has ${bytes.length} bytes`;
      return [this.#broken(exceeded("maxAttachmentBytes", text))];
    }
    return this.#attach(bytes, bytes.length);
  }

  /**
   * The connection has ended without F.
   *
   * @param {UmqError} error
   * @returns {Event[]}
   */
  receiveEnd(error) {
    return this.state === "closed" ? [] : [this.#ended(error, true)];
  }

  /**
   * @param {Message} message
   * @param {number} length
   * @returns {Event[]}
   */
  #take(message, length) {
    const { command, id, payload } = message;
    if (command === "F") {
      const { code, text } = readError(payload);
      return [this.#ended(new Refused(text || `refused with code ${code}`, code), true)];
    }
    if (command === "-") {
      return this.#attach(new AttachmentError(payload), payload.length);
    }
    if (command === "H" || command === "W") {
      return this.#greeted(message, length);
    }
    if (this.state !== "open") {
      throw new Violation("R8", `a message ${command} before the handshake is over`);
    }
    switch (command) {
      case "C":
        this.#called(id);
        return this.#hold({ type: "call", id, payload, attachments: [] }, message, "C", length);
      case "B":
        return this.#calledBack(message, length);
      case "R":
        if (!this.#asked.delete(id)) {
          return this.#skip(message, length);
        }
        return this.#hold({ type: "result", id, payload, attachments: [] }, message, "", length);
      case "E":
      case "!": {
        const { code, text } = readError(payload);
        return this.#asked.delete(id) ? [{ type: "failure", id, code, text }] : [];
      }
      case "T":
        return this.#updated(message, length);
      case "D":
        this.#unknown.delete(id);
        if (!this.#subscribed.delete(id)) {
          return [];
        }
        return this.#hold({ type: "topicClosed", topic: id }, message, `T${id}`, length);
      case "U":
        if (!this.#published.delete(id)) {
          return []; // R30
        }
        this.#say("D", id); // R29, A18
        return [{ type: "topicUnsubscribed", topic: id }];
      case "S":
        return this.#attributeCame(message, length);
      default: // X
        return this.#hold({ type: "attributeUnset", name: payload }, message, `S${payload}`, length);
    }
  }

  /**
   * H or W.
   *
   * @param {Message} message
   * @param {number} length
   * @returns {Event[]}
   */
  #greeted(message, length) {
    const { command, id, payload } = message;
    if (this.state !== (command === "H" ? "waitHello" : "waitWelcome")) {
      throw new Violation("A24", `a message ${command} where none is expected`);
    }
    const version = parseInt(id, 36);
    const fits = command === "H" ? version >= 1 : version >= 1 && version <= VERSION;
    if (!fits) {
      throw new Violation(
        "A12",
        `version ${version} of UMQ; version ${VERSION} is spoken here`,
        Code.UNSUPPORTED_VERSION,
      );
    }
    this.state = command === "H" ? "deciding" : "open";
    const type = command === "H" ? "hello" : "welcome";
    return this.#hold({ type, version, payload, attachments: [] }, message, EVERYTHING, length);
  }

  /** @param {string} id */
  #called(id) {
    if (this.#unanswered.has(id)) {
      throw new Violation("A25", `call ${id} while another one of that id is not answered`);
    }
    if (this.#unanswered.size >= this.#limits.maxPendingCalls) {
      throw exceeded("maxPendingCalls", "so many calls are not answered yet");
    }
    this.#unanswered.add(id);
  }

  /**
   * @param {Message} message
   * @param {number} length
   * @returns {Event[]}
   */
  #calledBack(message, length) {
    const { id, payload } = message;
    const separator = payload.indexOf(":");
    if (separator < 0) {
      throw new Violation("R22", "a callback without a callback's id");
    }
    const callback = canonical(payload.slice(0, separator), this.#limits.maxIdDigits);
    this.#called(id);
    if (!this.#callbacks.delete(callback)) {
      this.fail(id, new CallFailed("Callback not found", Code.NO_CALLBACK)); // A15
      return this.#skip(message, length);
    }
    const argument = payload.slice(separator + 1);
    const event = /** @type {Event} */ ({
      type: "callback",
      id,
      callback,
      payload: argument,
      attachments: [],
    });
    return this.#hold(event, message, "C", length);
  }

  /**
   * @param {Message} message
   * @param {number} length
   * @returns {Event[]}
   */
  #updated(message, length) {
    const { id, payload } = message;
    const wanted = this.#subscribed.get(id);
    if (wanted === undefined && !this.#unknown.has(id)) {
      if (this.#unknown.size >= this.#limits.maxTopics) {
        this.#unknown.clear(); // they are told again
      }
      this.#unknown.add(id);
      this.#say("U", id); // A17
    }
    if (!wanted) {
      return this.#skip(message, length); // R31
    }
    const event = /** @type {Event} */ ({ type: "update", topic: id, payload, attachments: [] });
    return this.#hold(event, message, `T${id}`, length);
  }

  /**
   * @param {Message} message
   * @param {number} length
   * @returns {Event[]}
   */
  #attributeCame(message, length) {
    const { payload } = message;
    const equals = payload.indexOf("=");
    if (equals < 0) {
      throw new Violation("A22", "an attribute without ="); // R32
    }
    const name = payload.slice(0, equals);
    const value = payload.slice(equals + 1);
    const event = /** @type {Event} */ ({ type: "attributeSet", name, value, attachments: [] });
    return this.#hold(event, message, `S${name}`, length);
  }

  /**
   * Tell of a message, at once or when its attachments have come.
   *
   * @param {Event | null} event null: of this one nobody is to be told
   * @param {Message} message
   * @param {string} order "" if it need not wait for any other
   * @param {number} length
   * @returns {Event[]}
   */
  #hold(event, message, order, length) {
    const missing = message.attachments;
    if (missing === 0 && this.#held.length === 0) {
      return event === null ? [] : [this.#settled(event)];
    }
    this.#held.push({ event, attachments: [], missing, order, bytes: length });
    this.#require(length);
    return missing === 0 ? this.#release() : [];
  }

  /**
   * Take the attachments of a message of which nobody is told.
   *
   * @param {Message} message
   * @param {number} length
   * @returns {Event[]}
   */
  #skip(message, length) {
    return message.attachments > 0 ? this.#hold(null, message, "", length) : [];
  }

  /**
   * Give an attachment to the oldest message that misses one (A8).
   *
   * @param {Attachment} attachment
   * @param {number} length
   * @returns {Event[]}
   */
  #attach(attachment, length) {
    const held = this.#held.find((each) => each.missing > 0);
    if (held === undefined) {
      this.strayAttachments += 1;
      return [];
    }
    held.missing -= 1;
    if (held.event !== null) {
      held.attachments.push(attachment);
      held.bytes += length;
      try {
        this.#require(length);
      } catch (error) {
        return [this.#broken(error)];
      }
    }
    return held.missing === 0 ? this.#release() : [];
  }

  /** @param {number} length */
  #require(length) {
    this.#heldBytes += length;
    if (this.#heldBytes > this.#limits.maxHeldBytes) {
      throw exceeded("maxHeldBytes", "too much waits for attachments");
    }
    if (this.#held.length > this.#limits.maxHeldMessages) {
      throw exceeded("maxHeldMessages", "too many messages wait for attachments");
    }
  }

  /**
   * Tell of all held messages that wait for nothing any more.
   *
   * @returns {Event[]}
   */
  #release() {
    const events = [];
    const kept = [];
    const blocked = new Set();
    for (const held of this.#held) {
      const waits =
        held.missing > 0 || blocked.has(EVERYTHING) || (held.order && blocked.has(held.order));
      if (waits) {
        blocked.add(held.order);
        kept.push(held);
        continue;
      }
      this.#heldBytes -= held.bytes;
      const { event } = held;
      if (event !== null) {
        if ("attachments" in event) {
          event.attachments = held.attachments;
        }
        events.push(event);
      }
    }
    this.#held = kept;
    const told = [];
    for (const event of events) {
      try {
        told.push(this.#settled(event));
      } catch (error) {
        return [...told, this.#broken(error)];
      }
    }
    return told;
  }

  /**
   * Do to our state what an event says, now that it is told.
   *
   * @param {Event} event
   * @returns {Event}
   */
  #settled(event) {
    if (event.type === "attributeSet") {
      this.#forgetAttribute(event.name);
      const { name, value, attachments } = event;
      this.#attributeBytes += attributeBytes(name, { value, attachments });
      this.attributes.set(name, { value, attachments });
      if (this.attributes.size > this.#limits.maxAttributes) {
        throw exceeded("maxAttributes", "there are too many attributes");
      }
      if (this.#attributeBytes > this.#limits.maxAttributeBytes) {
        throw exceeded("maxAttributeBytes", "all attributes together are too long");
      }
    } else if (event.type === "attributeUnset") {
      this.#forgetAttribute(event.name);
    }
    return event;
  }

  /** @param {string} name */
  #forgetAttribute(name) {
    const attribute = this.attributes.get(name);
    if (attribute !== undefined) {
      this.#attributeBytes -= attributeBytes(name, attribute);
      this.attributes.delete(name);
    }
  }

  /**
   * The other side broke UMQ: say so and end.
   *
   * @param {unknown} error
   * @returns {Event}
   */
  #broken(error) {
    if (!(error instanceof Violation)) {
      throw error; // a mistake of ours
    }
    const what = FATAL_TEXTS.get(error.code) ?? "";
    this.#send("F", "0", sendable(`${error.code} ${what}${error.message}`), []);
    return this.#ended(error, false);
  }

  /**
   * @param {UmqError} error
   * @param {boolean} byPeer
   * @returns {Event}
   */
  #ended(error, byPeer) {
    this.state = "closed";
    this.#held = [];
    this.#heldBytes = 0;
    this.#asked.clear();
    this.#unanswered.clear();
    this.#callbacks.clear();
    this.#subscribed.clear();
    this.#published.clear();
    this.attributes.clear();
    this.#attributeBytes = 0;
    return { type: "closed", error, byPeer };
  }

  // ---- what goes ----

  /**
   * Begin: the client's first message (R8).
   *
   * @param {string} payload
   * @param {AttachmentSource[]} [attachments]
   */
  hello(payload, attachments = []) {
    this.#expect("idle", "a hello is the first message of a client");
    this.#send("H", base36(VERSION), payload, attachments);
    this.state = "waitWelcome";
  }

  /**
   * Accept a hello (R9).
   *
   * @param {string} payload
   * @param {AttachmentSource[]} [attachments]
   */
  welcome(payload, attachments = []) {
    this.#expect("deciding", "a welcome answers a hello");
    this.#send("W", base36(VERSION), payload, attachments);
    this.state = "open";
  }

  /**
   * End the connection with an error (R11); also the answer to a hello that is refused.
   *
   * @param {number} code
   * @param {string} text
   */
  fatal(code, text) {
    if (this.state !== "closed") {
      this.#send("F", "0", sendable(`${code} ${text}`), []);
      this.#ended(new Refused(text, code), false);
    }
  }

  /**
   * Call; a `result` or a `failure` with the id that is returned answers it.
   *
   * @param {string} payload
   * @param {AttachmentSource[]} [attachments]
   * @returns {string}
   */
  call(payload, attachments = []) {
    return this.#ask("C", payload, attachments);
  }

  /**
   * Call a callback of the other side; answered as a call is (R22, R23).
   *
   * @param {string} callback the id that it has registered
   * @param {string} payload
   * @param {AttachmentSource[]} [attachments]
   * @returns {string}
   */
  callBack(callback, payload, attachments = []) {
    return this.#ask("B", `${ownId(callback)}:${payload}`, attachments);
  }

  /**
   * Nobody awaits the answer to a call any more; it is ignored when it comes.
   *
   * @param {string} id
   */
  forget(id) {
    this.#asked.delete(id);
  }

  /**
   * Answer a call or a callback (R17).
   *
   * @param {string} id
   * @param {string} payload
   * @param {AttachmentSource[]} [attachments]
   */
  result(id, payload, attachments = []) {
    this.#requireUnanswered(id);
    this.#send("R", id, payload, attachments);
    this.#unanswered.delete(id);
  }

  /**
   * Answer a call or a callback with an error (R18).
   *
   * @param {string} id
   * @param {CallFailed} error
   */
  fail(id, error) {
    this.#requireUnanswered(id);
    const text = error.code ? `${error.code} ${error.message}` : error.message;
    this.#send("E", id, sendable(text), []);
    this.#unanswered.delete(id);
  }

  /**
   * Return the id of a new callback, which the other side may call once (A16).
   *
   * @returns {string}
   */
  registerCallback() {
    this.#requireRoom(this.#callbacks.size, "maxCallbacks", "callbacks");
    const id = this.#newId((taken) => this.#callbacks.has(taken));
    this.#callbacks.add(id);
    return id;
  }

  /** @param {string} id */
  unregisterCallback(id) {
    this.#callbacks.delete(id);
  }

  /**
   * Return the id of a new topic, whose updates are told from now on; the publisher is to be told
   * of it by a call (R25).
   *
   * @returns {string}
   */
  openSubscription() {
    this.#expect("open", "there is no connection");
    this.#requireRoom(this.#subscribed.size, "maxTopics", "topics");
    const id = this.#newId((taken) => this.#subscribed.has(taken) || this.#unknown.has(taken));
    this.#subscribed.set(id, true);
    return id;
  }

  /**
   * End a subscription: no update of it is told any more, and U asks the publisher for D (R29).
   *
   * @param {string} id
   */
  unsubscribe(id) {
    if (this.#subscribed.get(id)) {
      this.#subscribed.set(id, false);
      this.#say("U", id);
      for (const held of this.#held) {
        if (held.event?.type === "update" && held.event.topic === id) {
          held.event = null;
          held.attachments = [];
        }
      }
    }
  }

  /**
   * The publisher refused a subscription: there is no topic of that id.
   *
   * @param {string} id
   */
  dropSubscription(id) {
    this.#subscribed.delete(id);
  }

  /**
   * Begin to publish under an id that a subscriber has chosen.
   *
   * @param {string} id
   */
  openTopic(id) {
    this.#expect("open", "there is no connection");
    const topic = ownId(id);
    if (this.#published.has(topic)) {
      throw new BadArgument(`topic ${topic} is open already`);
    }
    this.#requireRoom(this.#published.size, "maxTopics", "topics");
    this.#published.add(topic);
  }

  /**
   * Publish an update. Returns whether the topic is still open.
   *
   * @param {string} id
   * @param {string} payload
   * @param {AttachmentSource[]} [attachments]
   * @returns {boolean}
   */
  update(id, payload, attachments = []) {
    const topic = ownId(id);
    if (!this.#published.has(topic)) {
      return false; // R28
    }
    this.#send("T", topic, payload, attachments);
    return true;
  }

  /**
   * End a topic (R27).
   *
   * @param {string} id
   */
  closeTopic(id) {
    const topic = ownId(id);
    if (this.#published.delete(topic)) {
      this.#say("D", topic);
    }
  }

  /**
   * Set an attribute of this connection for the other side (R32, R33).
   *
   * @param {string} name
   * @param {string} value
   * @param {AttachmentSource[]} [attachments]
   */
  setAttribute(name, value, attachments = []) {
    this.#expect("open", "there is no connection");
    if (name.includes("=")) {
      throw new BadArgument(`the attribute's name '${shortened(name)}' has an =`);
    }
    this.#send("S", "0", `${name}=${value}`, attachments);
  }

  /** @param {string} name */
  unsetAttribute(name) {
    this.#expect("open", "there is no connection");
    this.#send("X", "0", name, []);
  }

  /**
   * @param {"C" | "B"} command
   * @param {string} payload
   * @param {AttachmentSource[]} attachments
   * @returns {string}
   */
  #ask(command, payload, attachments) {
    this.#expect("open", "there is no connection");
    this.#requireRoom(this.#asked.size, "maxPendingCalls", "calls without an answer");
    const id = this.#newId((taken) => this.#asked.has(taken));
    this.#send(command, id, payload, attachments);
    this.#asked.add(id);
    return id;
  }

  /**
   * @param {(id: string) => boolean} isTaken
   * @returns {string}
   */
  #newId(isTaken) {
    let id;
    do {
      this.#lastId = (this.#lastId % 0xffff_ffff) + 1; // A4
      id = base36(this.#lastId);
    } while (isTaken(id));
    return id;
  }

  /**
   * @param {string} state
   * @param {string} text
   */
  #expect(state, text) {
    if (this.state !== state) {
      throw new ConnectionLost(`${text} (the connection is in the state ${this.state})`);
    }
  }

  /** @param {string} id */
  #requireUnanswered(id) {
    if (!this.#unanswered.has(id)) {
      throw new BadArgument(`no call ${id} awaits an answer`);
    }
  }

  /**
   * @param {number} size
   * @param {"maxCallbacks" | "maxTopics" | "maxPendingCalls"} limit
   * @param {string} what
   */
  #requireRoom(size, limit, what) {
    if (size >= this.#limits[limit]) {
      throw new LimitExceeded(`there are ${size} ${what}, more are not held (${limit})`);
    }
  }

  /**
   * @param {string} command
   * @param {string} id
   */
  #say(command, id) {
    this.#send(command, id, "", []);
  }

  /**
   * @param {string} command
   * @param {string} id
   * @param {string} payload
   * @param {AttachmentSource[]} attachments
   */
  #send(command, id, payload, attachments) {
    const binaries = attachments.map(bytesToSend);
    const text = spell({ command, id, payload, attachments: binaries.length });
    this.#output.push(text, ...binaries);
  }
}

/** How texts of F begin, by code. @type {ReadonlyMap<number, string>} */
const FATAL_TEXTS = new Map([
  [Code.PROTOCOL_ERROR, "Protocol error: "],
  [Code.UNSUPPORTED_VERSION, "Unsupported version: "],
]);

/**
 * Bytes to send; an `AttachmentError` tells that there are none (R15).
 *
 * @typedef {Uint8Array | ArrayBuffer | ArrayBufferView | AttachmentError} AttachmentSource
 */

/**
 * @param {AttachmentSource} source
 * @returns {Uint8Array | string}
 */
function bytesToSend(source) {
  if (source instanceof AttachmentError) {
    return spell({ command: "-", id: "0", payload: sendable(source.message), attachments: 0 });
  }
  const bytes = asBytes(source);
  if (bytes === null) {
    throw new BadArgument("an attachment is a Uint8Array, an ArrayBuffer or a view of one");
  }
  return bytes;
}

/**
 * @param {unknown} source
 * @returns {Uint8Array | null}
 */
function asBytes(source) {
  if (source instanceof Uint8Array) {
    return source;
  }
  if (source instanceof ArrayBuffer) {
    return new Uint8Array(source);
  }
  if (ArrayBuffer.isView(source)) {
    return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  }
  return null;
}

/**
 * Return an id of the caller's in canonical form.
 *
 * @param {string} id
 * @returns {string}
 */
function ownId(id) {
  if (typeof id !== "string" || !id || id.length > 13 || !DIGITS.test(id)) {
    throw new BadArgument(`'${shortened(String(id))}' is no id: 1 to 13 of the digits 0-9 and A-Z`);
  }
  return id.replace(/^0+/, "") || "0";
}

/**
 * @param {string} name
 * @param {Attribute} attribute
 * @returns {number}
 */
function attributeBytes(name, { value, attachments }) {
  let bytes = name.length + value.length;
  for (const each of attachments) {
    bytes += each instanceof AttachmentError ? each.message.length : each.length;
  }
  return bytes;
}

// ---- publications -----------------------------------------------------------------------------

/** A publication as the broker tells it. */
export class Publication {
  /**
   * @param {Record<string, any>} said
   * @param {Attachment | null} attachment its body, if that is not in `said`
   */
  constructor(said, attachment) {
    /** @type {string} */
    this.topic = String(said.topic ?? "");
    /**
     * When the broker got it, in milliseconds since 1970; null: before its last start.
     *
     * @type {number | null}
     */
    this.at = typeof said.at === "number" ? said.at : null;
    /** Its body: text, or bytes where that is no UTF-8. @type {string | Uint8Array} */
    this.payload = attachment instanceof Uint8Array ? attachment : String(said.text ?? "");
    /** Whether the broker kept it when the subscription began. @type {boolean} */
    this.retained = said.retained === true;
    /** How many of its topic it replaces, which came too fast (`everyMs`). @type {number} */
    this.replaced = Number(said.replaced ?? 0);
    /** @type {Record<string, string>} */
    this.properties = said.properties ?? {};
    /** Why its body could not be delivered, else null. @type {AttachmentError | null} */
    this.error = attachment instanceof AttachmentError ? attachment : null;
  }

  /** The body as text; null if it is not UTF-8. @returns {string | null} */
  get text() {
    if (typeof this.payload === "string") {
      return this.payload;
    }
    try {
      return UTF8.decode(this.payload);
    } catch {
      return null;
    }
  }

  /** The body as bytes. @returns {Uint8Array} */
  get bytes() {
    return typeof this.payload === "string" ? new TextEncoder().encode(this.payload) : this.payload;
  }

  /**
   * What the body says as JSON.
   *
   * @returns {any}
   * @throws {SyntaxError} if it is none
   */
  json() {
    return JSON.parse(this.text ?? "");
  }
}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Return the publications of a list as the broker spells it; bodies that are not in it are the
 * attachments, in order.
 *
 * @param {unknown} list
 * @param {Attachment[]} attachments
 * @returns {{publications: Publication[], dropped: number}}
 */
function readPublications(list, attachments) {
  if (!Array.isArray(list)) {
    throw new Violation("R25", "an update that is no JSON array of publications");
  }
  const publications = [];
  let dropped = 0;
  let next = 0;
  for (const said of list) {
    if (said === null || typeof said !== "object") {
      throw new Violation("R25", "a publication that is no JSON object");
    }
    if (said.topic === undefined) {
      dropped += Number(said.dropped ?? 0);
      continue;
    }
    let attachment = null;
    if (said.attachment === true) {
      attachment = attachments[next] ?? new AttachmentError("no attachment came for it");
      next += 1;
    }
    publications.push(new Publication(said, attachment));
  }
  return { publications, dropped };
}

/**
 * @param {string} payload
 * @param {string} what
 * @returns {any}
 */
function readJson(payload, what) {
  try {
    return JSON.parse(payload);
  } catch {
    throw new Violation("JSON", `${what} is no JSON: '${shortened(payload)}'`);
  }
}

// ---- the client -------------------------------------------------------------------------------

/**
 * What a handler gets of a call or callback.
 *
 * @typedef {object} IncomingCall
 * @property {string} payload
 * @property {Attachment[]} attachments
 */

/**
 * Answers a call: text; bytes, which are sent as an attachment; `{payload, attachments}`; any other
 * value as JSON. What it throws is the answer, too: `CallFailed` with its code.
 *
 * @typedef {(call: IncomingCall) => unknown} CallHandler
 */

/**
 * @typedef {"connecting" | "open" | "waiting" | "closed"} State
 */

/**
 * How a client behaves.
 *
 * @typedef {object} Options
 * @property {string | (() => string | Promise<string>)} [token] who we are, or what returns it
 * @property {string} [user] who we are, with `password`
 * @property {string} [password]
 * @property {Record<string, unknown>} [hello] more members of the hello's payload
 * @property {boolean} [reconnect] replace a lost connection; true
 * @property {number} [timeoutMs] for a handshake and for an answer; 10,000
 * @property {number} [firstPauseMs] before the first attempt to connect again; then twice as long
 *   each time, a random half less; 250
 * @property {number} [longestPauseMs] 10,000
 * @property {number} [heartbeatMs] after so long without a word the broker is asked whether it is
 *   there, and after as long again the connection is given up; 0: never; 15,000
 * @property {Partial<Limits>} [limits]
 * @property {Record<string, string>} [attributes] set on every connection
 * @property {CallHandler} [onCall] answers what the peer calls
 * @property {(state: State, error: UmqError | null) => void} [onState] called when that changes
 * @property {(name: string, attribute: Attribute | null) => void} [onAttribute] the peer has set
 *   one, or (null) unset it
 * @property {typeof globalThis.WebSocket} [WebSocket] where the language has none
 */

/**
 * What came for a subscription at once. `dropped`: before these so many were dropped, by the broker
 * for a receiver that is too slow, or here because nobody read them. `resumed`: the connection had
 * been lost and is there again, so that some may be missing.
 *
 * @typedef {object} Update
 * @property {Publication[]} publications
 * @property {number} dropped
 * @property {boolean} resumed
 */

/**
 * @typedef {object} SubscribeOptions
 * @property {number} [everyMs] of each topic at most one in that time, the last; 0: all
 * @property {boolean} [binary] bodies always as bytes
 * @property {boolean} [retained] first what the broker keeps; true
 * @property {boolean} [quiet] feedback to publishers does not count this one
 * @property {number} [timeoutMs]
 */

/**
 * @typedef {object} RequestOptions
 * @property {AttachmentSource[]} [attachments]
 * @property {number} [timeoutMs]
 */

/**
 * An answer to `request`.
 *
 * @typedef {{payload: string, attachments: Attachment[]}} Answer
 */

/**
 * A call: of the peer, or of a callback that it has registered.
 *
 * @typedef {object} Question
 * @property {string} payload
 * @property {AttachmentSource[]} [attachments]
 * @property {string} [callback]
 * @property {Subscription} [subscription] that it makes
 * @property {() => void} [onResult] called before anything is told that came behind the result
 */

/**
 * A call without an answer.
 *
 * @typedef {object} Pending
 * @property {Question} question
 * @property {string | null} id null: it waits to be sent
 * @property {number} bytes
 * @property {(answer: Answer) => void} resolve
 * @property {(error: Error) => void} reject
 */

/**
 * Connect to a broker: `umq://HOST:PORT`, `umqs://` with TLS, or a `ws`, `wss`, `http` or `https`
 * URL; in a page "" is where the page is from. The path is `/umq` if the URL has none.
 *
 * With `reconnect` it is tried again and again until `timeoutMs` has passed.
 *
 * @param {string} [url]
 * @param {Options} [options]
 * @returns {Promise<Client>}
 * @throws {BadArgument | ConnectionLost | Refused | TimedOut}
 */
export async function connect(url = "", options = {}) {
  const client = new Client(url, options);
  try {
    await client.ready();
  } catch (error) {
    client.close();
    throw error;
  }
  return client;
}

/**
 * Lists that come in pages: the member of their items that says where a page ends, and what comes
 * before the first.
 *
 * @type {Readonly<Record<string, {by: string, first: string | number}>>}
 */
const PAGED = Object.freeze({
  clients: { by: "id", first: 0 },
  topics: { by: "topic", first: "" },
  retained: { by: "topic", first: "" },
  queues: { by: "queue", first: "" },
  wills: { by: "id", first: 0 },
});

/**
 * One client, through as many connections as it takes. It begins to connect when it is made; who
 * wants to wait for that calls `ready`, or uses `connect`.
 *
 * What awaits an answer waits for a connection first, `timeoutMs` in all. A call whose connection
 * is lost before the answer fails with `ConnectionLost`: nobody knows whether it was done.
 */
export class Client {
  /** @type {State} */
  state = "connecting";

  /** Why there is no connection, else null. @type {UmqError | null} */
  error = null;

  /** The payload of the broker's welcome. @type {Record<string, any>} */
  welcome = {};

  /** How many connections there have been. */
  connections = 0;

  /** @type {Options} */
  #options;
  #url;
  /** @type {Readonly<Limits>} */
  #limits;
  #timeoutMs;
  #WebSocket;
  /** @type {Connection | null} */
  #connection = null;
  /** Calls that the peer has not answered, by id. @type {Map<string, Pending>} */
  #pending = new Map();
  /** Calls that wait to be sent. @type {Set<Pending>} */
  #queue = new Set();
  #queuedBytes = 0;
  /** @type {Set<Subscription>} */
  #subscriptions = new Set();
  /** By the topic's id on this connection. @type {Map<string, Subscription>} */
  #byTopic = new Map();
  /** @type {Map<string, CallHandler>} */
  #callbacks = new Map();
  /** @type {Map<string, Topic>} */
  #topics = new Map();
  /** @type {Map<string, string>} */
  #attributes;
  /** @type {Set<{resolve: () => void, reject: (error: Error) => void}>} */
  #waiting = new Set();
  #attempts = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /**
   * @param {string} url as for `connect`
   * @param {Options} [options]
   * @throws {BadArgument} for a URL that cannot be, or where there is no WebSocket
   */
  constructor(url, options = {}) {
    this.#url = socketUrl(url);
    this.#options = options;
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits };
    this.#timeoutMs = options.timeoutMs ?? 10_000;
    this.#attributes = new Map(Object.entries(options.attributes ?? {}));
    this.#WebSocket = options.WebSocket ?? globalThis.WebSocket;
    if (this.#WebSocket === undefined) {
      throw new BadArgument(
        "this JavaScript has no WebSocket: take Node 22 or newer, start Node 20 with " +
          "--experimental-websocket, or give one of a package: connect(url, {WebSocket})",
      );
    }
    this.#open();
  }

  /** Attributes that the peer has set for this connection. @returns {Map<string, Attribute>} */
  get attributes() {
    return this.#connection?.peer.attributes ?? new Map();
  }

  /**
   * Return when there is a connection.
   *
   * @param {number} [timeoutMs]
   * @returns {Promise<void>}
   * @throws {ConnectionLost | Refused | TimedOut}
   */
  async ready(timeoutMs = this.#timeoutMs) {
    if (this.state === "open") {
      return;
    }
    if (this.state === "closed") {
      throw this.error ?? new ConnectionLost("the client is closed");
    }
    await new Promise((/** @type {(value?: undefined) => void} */ resolve, reject) => {
      const waiter = {
        resolve: () => done(resolve),
        reject: (/** @type {Error} */ error) => done(() => reject(error)),
      };
      const done = (/** @type {() => void} */ then) => {
        clearTimeout(timer);
        this.#waiting.delete(waiter);
        then();
      };
      const timer = later(timeoutMs, () => {
        const why = this.error === null ? "it did not answer" : this.error.message;
        waiter.reject(new TimedOut(`no connection to ${this.#url} in ${timeoutMs} ms: ${why}`));
      });
      this.#waiting.add(waiter);
    });
  }

  /**
   * End it: nothing is tried again. What has no answer fails, and subscriptions end.
   *
   * @returns {Promise<void>} when the connection is closed
   */
  async close() {
    const connection = this.#connection;
    this.#end(new ConnectionLost("the client was closed"), true);
    await connection?.closed;
  }

  // ---- the broker's methods ----

  /**
   * Subscribe to a pattern of topics.
   *
   * With `onUpdate` publications are told by calling it, those of one message at once; without it
   * they are read: `for await (const publication of subscription)`. The subscription outlives a
   * lost connection.
   *
   * @param {string} pattern
   * @param {SubscribeOptions} [options]
   * @param {(update: Update) => void} [onUpdate]
   * @returns {Promise<Subscription>} when the broker has accepted it
   * @throws {CallFailed} if it has not
   */
  async subscribe(pattern, options = {}, onUpdate) {
    const { timeoutMs = this.#timeoutMs, everyMs, ...others } = options;
    const said = everyMs === undefined ? others : { ...others, every_ms: everyMs };
    const until = performance.now() + timeoutMs;
    if (this.state !== "open") {
      await this.ready(timeoutMs);
    }
    const subscription = new Subscription(
      { pattern, options: said, onUpdate: onUpdate ?? null, maxUnread: this.#limits.maxUnread },
      (ended) => this.#unsubscribe(ended),
    );
    this.#subscriptions.add(subscription);
    try {
      await this.#subscribe(subscription, Math.max(1, until - performance.now()));
    } catch (error) {
      this.#subscriptions.delete(subscription);
      throw error;
    }
    return subscription;
  }

  /**
   * Publish: text, bytes (a Uint8Array, an ArrayBuffer or a view of one), or any other value, which
   * is spelled as JSON.
   *
   * @param {string} topic
   * @param {unknown} body
   * @param {{retain?: boolean, properties?: Record<string, string>, timeoutMs?: number}} [options]
   * @returns {Promise<void>} when the broker has it
   */
  async publish(topic, body, { timeoutMs, ...options } = {}) {
    const { text, attachments } = spellForBroker(body);
    await this.request(JSON.stringify(["publish", topic, text, options]), {
      attachments,
      timeoutMs,
    });
  }

  /**
   * Ask a client of the broker, as `motemq call` does.
   *
   * @param {string} topic whom
   * @param {unknown} body as for `publish`
   * @param {{timeoutMs?: number}} [options]
   * @returns {Promise<string | Uint8Array>} its answer; bytes where that is no UTF-8
   * @throws {CallFailed} if it does not answer, or is not there
   */
  async call(topic, body = "", { timeoutMs } = {}) {
    const { text, attachments } = spellForBroker(body);
    const request = JSON.stringify(["call", topic, text]);
    const answer = await this.request(request, { attachments, timeoutMs });
    const [attachment] = answer.attachments;
    if (attachment instanceof AttachmentError) {
      throw attachment;
    }
    return attachment ?? String(this.#json(answer.payload).answer ?? "");
  }

  /**
   * Call one of the broker's methods; docs/umq.md lists them.
   *
   * In lists of its answer each publication whose body is an attachment has it as `bytes` (or, as
   * `error`, why there is none).
   *
   * @param {string} name
   * @param {unknown[]} [args]
   * @param {RequestOptions} [options]
   * @returns {Promise<any>} what it answers, read as JSON
   * @throws {CallFailed}
   */
  async method(name, args = [], options = {}) {
    const answer = await this.request(JSON.stringify([name, ...args]), options);
    const value = this.#json(answer.payload);
    const attachments = answer.attachments.values();
    for (const list of Object.values(value ?? {})) {
      for (const item of Array.isArray(list) ? list : []) {
        if (item !== null && item.attachment === true) {
          const attachment = attachments.next().value;
          const member = attachment instanceof Uint8Array ? "bytes" : "error";
          item[member] = attachment ?? new AttachmentError("no attachment came for it");
        }
      }
    }
    return value;
  }

  /**
   * Ask for one of the broker's long lists, page by page: `clients`, `topics`, `retained`, `queues`
   * or `wills`.
   *
   * @param {"clients" | "topics" | "retained" | "queues" | "wills"} name
   * @param {{prefix?: string, limit?: number, timeoutMs?: number}} [options] `limit`: of one page
   * @returns {AsyncGenerator<any, void, void>} its items, as docs/umq.md says
   * @throws {BadArgument | CallFailed}
   */
  async *list(name, { prefix = "", limit = 100, timeoutMs } = {}) {
    if (!Object.hasOwn(PAGED, name)) {
      throw new BadArgument(`'${name}' is no list: ${Object.keys(PAGED).join(", ")}`);
    }
    const { by, first } = PAGED[name];
    let after = first;
    for (;;) {
      const answer = await this.method(name, [{ prefix, after, limit }], { timeoutMs });
      const items = answer[name];
      yield* items;
      const last = answer.after ?? items.at(-1)?.[by];
      if (!answer.more || last === undefined) {
        return;
      }
      after = last;
    }
  }

  /**
   * Return what was published to a topic: its last publications, or those of a time span.
   *
   * @param {string} topic
   * @param {{last?: number, from?: number, to?: number, limit?: number, timeoutMs?: number}} [options]
   *   `from` and `to` in milliseconds since 1970
   * @returns {Promise<{publications: Publication[], source: string, more: boolean}>}
   */
  async history(topic, { timeoutMs, ...options } = {}) {
    const request = JSON.stringify(["history", topic, options]);
    const answer = await this.request(request, { timeoutMs });
    const value = this.#json(answer.payload);
    const { publications } = this.#read(() =>
      readPublications(value?.publications, answer.attachments),
    );
    return { publications, source: String(value.source), more: value.more === true };
  }

  /**
   * Return the milliseconds of a round trip: to the broker, or by the broker to one of its clients.
   *
   * @param {string | number} [client] its name, or the number of its connection
   * @param {{timeoutMs?: number}} [options]
   * @returns {Promise<number>}
   * @throws {CallFailed} if that client is not there, or cannot be pinged
   */
  async ping(client, { timeoutMs } = {}) {
    if (client !== undefined) {
      return Number((await this.method("ping", [client], { timeoutMs })).ms);
    }
    await this.ready(timeoutMs);
    const began = performance.now();
    await this.#echo(timeoutMs);
    return performance.now() - began;
  }

  // ---- UMQ itself, for peers of any kind ----

  /**
   * Call the peer with a payload of any form.
   *
   * @param {string} payload
   * @param {RequestOptions} [options]
   * @returns {Promise<Answer>}
   * @throws {CallFailed} its answer was E
   */
  async request(payload, { attachments = [], timeoutMs = this.#timeoutMs } = {}) {
    const until = performance.now() + timeoutMs;
    if (this.state !== "open") {
      await this.ready(timeoutMs);
    }
    this.#requireTaken(payload, attachments);
    return this.#ask({ payload, attachments }, Math.max(1, until - performance.now()));
  }

  /**
   * Refuse what the broker would end the connection for; its welcome says how much it takes.
   *
   * @param {string} payload
   * @param {AttachmentSource[]} attachments
   */
  #requireTaken(payload, attachments) {
    const { max_text: maxText = Infinity, max_attachment: maxAttachment = Infinity } = this.welcome;
    for (const each of attachments) {
      const bytes = asBytes(each)?.length ?? 0;
      if (bytes > maxAttachment) {
        throw new LimitExceeded(`${bytes} bytes, the broker takes ${maxAttachment} (umq.max_attachment)`);
      }
    }
    const characters = payload.length + LONGEST_HEAD;
    // A character has three bytes at most: most need not be counted.
    const bytes = characters * 3 > maxText ? new TextEncoder().encode(payload).length + LONGEST_HEAD : 0;
    if (bytes > maxText) {
      throw new LimitExceeded(`about ${bytes} bytes of text, the broker takes ${maxText} (umq.max_text)`);
    }
  }

  /**
   * Call a callback that the peer has registered.
   *
   * @param {string} callback its id
   * @param {string} payload
   * @param {RequestOptions} [options]
   * @returns {Promise<Answer>}
   */
  async callBack(callback, payload, { attachments = [], timeoutMs = this.#timeoutMs } = {}) {
    return this.#ask({ callback: ownId(callback), payload, attachments }, timeoutMs);
  }

  /**
   * Register a callback, which the peer may call once on this connection; tell it the id by a call.
   *
   * @param {CallHandler} handler
   * @returns {string} its id
   */
  registerCallback(handler) {
    const id = this.#peer().registerCallback();
    this.#callbacks.set(id, handler);
    return id;
  }

  /** @param {string} id */
  unregisterCallback(id) {
    this.#callbacks.delete(id);
    this.#connection?.peer.unregisterCallback(id);
  }

  /**
   * Begin to publish to the peer, under the topic id that it has chosen in a call.
   *
   * @param {string} id
   * @returns {Topic}
   */
  openTopic(id) {
    const peer = this.#peer();
    peer.openTopic(id);
    const topic = new Topic(
      (payload, attachments) => {
        const isOpen = peer.update(id, payload, attachments);
        this.#flush();
        return isOpen;
      },
      () => {
        peer.closeTopic(id);
        this.#topics.delete(ownId(id));
        this.#flush();
      },
    );
    this.#topics.set(ownId(id), topic);
    return topic;
  }

  /**
   * Set an attribute of ours for the peer, on this connection and every later one.
   *
   * @param {string} name
   * @param {string} value
   */
  setAttribute(name, value) {
    if (name.includes("=")) {
      throw new BadArgument(`the attribute's name '${shortened(name)}' has an =`);
    }
    this.#attributes.set(name, value);
    if (this.state === "open") {
      this.#peer().setAttribute(name, value);
      this.#flush();
    }
  }

  /** @param {string} name */
  unsetAttribute(name) {
    if (this.#attributes.delete(name) && this.state === "open") {
      this.#peer().unsetAttribute(name);
      this.#flush();
    }
  }

  // ---- asking ----

  /** @returns {Peer} */
  #peer() {
    if (this.#connection === null || this.state !== "open") {
      throw this.error ?? new ConnectionLost(`there is no connection to ${this.#url}`);
    }
    const { maxBufferedBytes } = this.#limits;
    if (this.#connection.bufferedBytes + this.#queuedBytes > maxBufferedBytes) {
      throw new LimitExceeded(
        `more than ${maxBufferedBytes} bytes wait to be sent (maxBufferedBytes); await the answers ` +
          "to earlier calls before the next",
      );
    }
    return this.#connection.peer;
  }

  /**
   * Call the peer, now or when it has answered some of the calls before (`maxPendingCalls`).
   *
   * @param {Question} question
   * @param {number} timeoutMs
   * @returns {Promise<Answer>}
   */
  #ask(question, timeoutMs) {
    return new Promise((resolve, reject) => {
      this.#peer();
      const { payload, attachments = [], onResult } = question;
      const bytes = attachments.reduce((sum, each) => sum + bytesToSend(each).length, 0);
      const timer = later(timeoutMs, () => {
        this.#forget(pending);
        reject(new TimedOut(`${this.#url} did not answer within ${timeoutMs} ms`));
      });
      /** @type {Pending} */
      const pending = {
        question,
        id: null,
        bytes: payload.length + bytes,
        resolve: (answer) => {
          clearTimeout(timer);
          onResult?.();
          resolve(answer);
        },
        reject: (error) => {
          clearTimeout(timer);
          reject(error);
        },
      };
      this.#queue.add(pending);
      this.#queuedBytes += pending.bytes;
      this.#sendQueued();
    });
  }

  /** Send calls that wait, as many as the peer shall have at a time. */
  #sendQueued() {
    const peer = this.#connection?.peer;
    for (const pending of this.#queue) {
      if (peer === undefined || peer.pendingCalls >= this.#limits.maxPendingCalls) {
        break;
      }
      this.#forget(pending);
      const { payload, attachments, callback } = pending.question;
      try {
        pending.id =
          callback === undefined
            ? peer.call(payload, attachments)
            : peer.callBack(callback, payload, attachments);
        this.#pending.set(pending.id, pending);
      } catch (error) {
        pending.reject(/** @type {Error} */ (error));
      }
    }
    this.#flush();
  }

  /**
   * Await no answer any more.
   *
   * @param {Pending} pending
   */
  #forget(pending) {
    if (this.#queue.delete(pending)) {
      this.#queuedBytes -= pending.bytes;
    } else if (pending.id !== null && this.#pending.delete(pending.id)) {
      this.#connection?.peer.forget(pending.id);
      this.#sendQueued();
    }
  }

  /**
   * Return when the peer has said anything to a call: R or E, both show that it is there.
   *
   * @param {number} [timeoutMs]
   */
  async #echo(timeoutMs = this.#timeoutMs) {
    try {
      await this.#ask({ payload: '["ping"]' }, timeoutMs);
    } catch (error) {
      if (!(error instanceof CallFailed)) {
        throw error;
      }
    }
  }

  #flush() {
    this.#connection?.flush();
  }

  /**
   * @param {string} payload
   * @returns {any}
   */
  #json(payload) {
    return this.#read(() => readJson(payload, "an answer"));
  }

  /**
   * Read what the broker said by MoteMQ's methods; what it gets wrong ends the connection.
   *
   * @template Value
   * @param {() => Value} read
   * @returns {Value}
   */
  #read(read) {
    try {
      return read();
    } catch (error) {
      const wrong = error instanceof UmqError ? error.message : String(error);
      const broken = new ConnectionLost(`${this.#url} is no MoteMQ broker: ${wrong}`);
      this.#connection?.fail(Code.PROTOCOL_ERROR, "Protocol error", broken);
      throw broken;
    }
  }

  // ---- subscriptions ----

  /**
   * Tell the broker of a subscription, under a new topic id.
   *
   * @param {Subscription} subscription
   * @param {number} timeoutMs
   * @param {() => void} [onResult]
   */
  async #subscribe(subscription, timeoutMs, onResult) {
    const peer = this.#peer();
    const topic = peer.openSubscription();
    subscription[topicOf] = topic;
    this.#byTopic.set(topic, subscription);
    const { pattern, options } = subscription;
    const payload = JSON.stringify(["subscribe", pattern, topic, options]);
    try {
      await this.#ask({ payload, subscription, onResult }, timeoutMs);
    } catch (error) {
      if (error instanceof TimedOut) {
        peer.unsubscribe(topic); // it may have been accepted after all
        this.#flush();
      } else {
        peer.dropSubscription(topic);
      }
      if (this.#byTopic.get(topic) === subscription) {
        this.#byTopic.delete(topic);
      }
      throw error;
    }
  }

  /** Make all subscriptions again, on a new connection. */
  async #resubscribe() {
    const connection = this.#connection;
    const made = [...this.#subscriptions].map(async (subscription) => {
      const resumed = () => subscription[deliver]({ publications: [], dropped: 0, resumed: true });
      try {
        await this.#subscribe(subscription, this.#timeoutMs, resumed);
      } catch (error) {
        if (error instanceof CallFailed && error.code !== Code.UNAVAILABLE) {
          this.#subscriptions.delete(subscription);
          subscription[end](error); // a later connection would be told the same
        } else if (!(error instanceof ConnectionLost)) {
          const lost = new ConnectionLost(`no subscription: ${String(error)}`);
          connection?.fail(Code.UNAVAILABLE, "no subscription", lost);
        }
      }
    });
    await Promise.all(made);
    if (this.#connection === connection) {
      this.#attempts = 0; // all is as it was
    }
  }

  /** @param {Subscription} subscription */
  #unsubscribe(subscription) {
    this.#subscriptions.delete(subscription);
    const topic = subscription[topicOf];
    const queued = [...this.#queue].find((each) => each.question.subscription === subscription);
    if (queued !== undefined) {
      this.#forget(queued); // the broker has not heard of it
      queued.reject(new ConnectionLost("the subscription was ended"));
      subscription[end](null);
    } else if (this.#byTopic.get(topic) === subscription && this.state === "open") {
      this.#connection?.peer.unsubscribe(topic);
      this.#flush();
    } else {
      subscription[end](null);
    }
  }

  // ---- connections ----

  #open() {
    this.#connection = new Connection(this.#url, this.#WebSocket, {
      limits: this.#limits,
      timeoutMs: this.#timeoutMs,
      heartbeatMs: this.#options.heartbeatMs ?? 15_000,
      hello: () => this.#hello(),
      echo: () => this.#echo().catch(() => {}), // the connection notices by itself
      take: (event) => this.#take(event),
    });
  }

  /** @returns {Promise<string>} */
  async #hello() {
    const { token, user, password, hello = {} } = this.#options;
    /** @type {Record<string, unknown>} */
    const said = { ...hello };
    const given = typeof token === "function" ? await token() : token;
    if (given !== undefined) {
      said.token = given;
    }
    if (user !== undefined) {
      said.user = user;
      said.password = password ?? "";
    }
    return Object.keys(said).length > 0 ? JSON.stringify(said) : "";
  }

  /** @param {Event} event */
  #take(event) {
    switch (event.type) {
      case "welcome":
        this.#welcomed(event.payload);
        break;
      case "result":
      case "failure": {
        const pending = this.#pending.get(event.id);
        this.#pending.delete(event.id);
        this.#sendQueued();
        if (event.type === "result") {
          pending?.resolve({ payload: event.payload, attachments: event.attachments });
        } else {
          pending?.reject(new CallFailed(event.text, event.code));
        }
        break;
      }
      case "update": {
        const list = readJson(event.payload, "an update");
        const told = readPublications(list, event.attachments);
        this.#byTopic.get(event.topic)?.[deliver]({ ...told, resumed: false });
        break;
      }
      case "topicClosed": {
        const subscription = this.#byTopic.get(event.topic);
        this.#byTopic.delete(event.topic);
        if (subscription !== undefined) {
          this.#subscriptions.delete(subscription);
          subscription[end](null);
        }
        break;
      }
      case "topicUnsubscribed":
        this.#topics.get(event.topic)?.[end]();
        this.#topics.delete(event.topic);
        break;
      case "call":
        this.#serve(event, this.#options.onCall ?? null);
        break;
      case "callback": {
        const handler = this.#callbacks.get(event.callback) ?? null;
        this.#callbacks.delete(event.callback);
        this.#serve(event, handler);
        break;
      }
      case "attributeSet": {
        const { name, value, attachments } = event;
        tell(() => this.#options.onAttribute?.(name, { value, attachments }));
        break;
      }
      case "attributeUnset":
        tell(() => this.#options.onAttribute?.(event.name, null));
        break;
      case "closed":
        this.#lost(event.error);
        break;
      default:
        break; // a hello is said to servers
    }
  }

  /**
   * Answer a call, when the handler has.
   *
   * @param {{id: string, payload: string, attachments: Attachment[]}} call
   * @param {CallHandler | null} handler
   */
  async #serve({ id, payload, attachments }, handler) {
    const peer = this.#connection?.peer;
    if (peer === undefined) {
      return;
    }
    try {
      if (handler === null) {
        throw new CallFailed("Not RPC server", Code.NOT_RPC_SERVER);
      }
      const answer = spellAnswer(await handler({ payload, attachments }));
      if (!peer.closing) {
        peer.result(id, answer.payload, answer.attachments);
      }
    } catch (error) {
      if (!peer.closing) {
        const text = error instanceof Error ? error.message : String(error);
        const code = error instanceof CallFailed ? error.code : 0;
        peer.fail(id, new CallFailed(text, code));
      }
    }
    this.#flush();
  }

  /** @param {string} payload */
  #welcomed(payload) {
    this.welcome = payload === "" ? {} : (readJson(payload, "a welcome") ?? {});
    this.connections += 1;
    this.#become("open", null);
    if (this.#isClosed()) {
      return;
    }
    for (const [name, value] of this.#attributes) {
      this.#peer().setAttribute(name, value);
    }
    for (const waiter of [...this.#waiting]) {
      waiter.resolve();
    }
    this.#resubscribe();
  }

  /** @param {UmqError} error */
  #lost(error) {
    // What is said to somebody who was let in is about what was said, not about who it is.
    const isFinal =
      this.state !== "open" &&
      error instanceof Refused &&
      (error.code === Code.REJECTED || error.code === Code.UNSUPPORTED_VERSION);
    if (isFinal || this.#options.reconnect === false) {
      this.#end(error, false);
      return;
    }
    this.#forgetConnection(error);
    if (this.#isClosed()) {
      return; // by the program, when it was told of an end
    }
    const { firstPauseMs = 250, longestPauseMs = 10_000 } = this.#options;
    const pauseMs = Math.min(longestPauseMs, firstPauseMs * 2 ** Math.min(this.#attempts, 16));
    this.#attempts += 1;
    this.#timer = setTimeout(
      () => {
        this.#become("connecting", this.error);
        if (!this.#isClosed()) {
          this.#open();
        }
      },
      pauseMs * (1 - Math.random() / 2),
    );
    this.#become("waiting", error);
  }

  /**
   * @param {UmqError} error
   * @param {boolean} byUs
   */
  #end(error, byUs) {
    if (this.state === "closed") {
      return;
    }
    clearTimeout(this.#timer);
    const connection = this.#connection;
    this.#forgetConnection(error);
    connection?.close();
    if (this.#isClosed()) {
      return;
    }
    this.#become("closed", error);
    for (const waiter of [...this.#waiting]) {
      waiter.reject(error);
    }
    for (const subscription of this.#subscriptions) {
      subscription[end](byUs ? null : error);
    }
    this.#subscriptions.clear();
  }

  /** Whether the client is closed; the program may have done that in any call of its functions. */
  #isClosed() {
    return this.state === "closed";
  }

  /** @param {UmqError} error */
  #forgetConnection(error) {
    this.#connection = null;
    const pending = [...this.#pending.values(), ...this.#queue];
    this.#pending.clear();
    this.#queue.clear();
    this.#queuedBytes = 0;
    const leaving = [...this.#byTopic.values()].filter((each) => !this.#subscriptions.has(each));
    this.#byTopic.clear();
    this.#callbacks.clear();
    for (const topic of this.#topics.values()) {
      topic[end]();
    }
    this.#topics.clear();
    for (const call of pending) {
      call.reject(new ConnectionLost(`the connection was lost: ${error.message}`));
    }
    for (const subscription of leaving) {
      subscription[end](null);
    }
  }

  /**
   * @param {State} state
   * @param {UmqError | null} error
   */
  #become(state, error) {
    this.state = state;
    this.error = error;
    tell(() => this.#options.onState?.(state, error));
  }
}

const topicOf = Symbol("topicOf");
const deliver = Symbol("deliver");
const end = Symbol("end");

/** A subscription; read it with `for await`, unless it was made with a function to call. */
export class Subscription {
  /** How many publications were dropped: by the broker, and here because nobody read them. */
  dropped = 0;

  /** How often the connection was lost and this subscription made again. */
  resumed = 0;

  /** Whether nothing comes any more. */
  ended = false;

  /** Why it ended, null if nobody is to blame. @type {Error | null} */
  error = null;

  /** The topic's id on the present connection. */
  [topicOf] = "";

  /** @type {((update: Update) => void) | null} */
  #onUpdate;
  #maxUnread;
  #leave;
  /** @type {Publication[]} */
  #unread = [];
  #read = 0; // how many of them have been read
  /** @type {(() => void)[]} */
  #waiting = [];
  /** @type {() => void} */
  #setClosed = () => {};

  /**
   * @param {{pattern: string, options: Record<string, unknown>,
   *   onUpdate: ((update: Update) => void) | null, maxUnread: number}} what
   * @param {(subscription: Subscription) => void} leave
   */
  constructor({ pattern, options, onUpdate, maxUnread }, leave) {
    this.pattern = pattern;
    this.options = options;
    this.#onUpdate = onUpdate;
    this.#maxUnread = maxUnread;
    this.#leave = leave;
    /** When nothing comes any more; `error` says why. @type {Promise<void>} */
    this.closed = new Promise((resolve) => {
      this.#setClosed = resolve;
    });
  }

  /**
   * End it. What has come can still be read.
   *
   * @returns {Promise<void>} when nothing comes any more
   */
  async unsubscribe() {
    if (!this.ended) {
      this.#leave(this);
      await this.closed;
    }
  }

  /**
   * Return the next publication; null when there will be none.
   *
   * @returns {Promise<Publication | null>}
   * @throws {UmqError} why it ended, if somebody is to blame
   */
  async next() {
    while (this.#read >= this.#unread.length) {
      if (this.ended) {
        if (this.error !== null) {
          throw this.error;
        }
        return null;
      }
      await new Promise((/** @type {(value?: undefined) => void} */ resolve) =>
        this.#waiting.push(resolve),
      );
    }
    const publication = this.#unread[this.#read];
    this.#read += 1;
    if (this.#read >= 1024 || this.#read === this.#unread.length) {
      this.#unread.splice(0, this.#read);
      this.#read = 0;
    }
    return publication;
  }

  /** @returns {AsyncGenerator<Publication, void, void>} */
  async *[Symbol.asyncIterator]() {
    try {
      for (let next = await this.next(); next !== null; next = await this.next()) {
        yield next;
      }
    } finally {
      await this.unsubscribe(); // the loop was left
    }
  }

  /** @param {Update} update */
  [deliver](update) {
    if (this.ended) {
      return;
    }
    this.dropped += update.dropped;
    this.resumed += update.resumed ? 1 : 0;
    if (this.#onUpdate !== null) {
      const onUpdate = this.#onUpdate;
      tell(() => onUpdate(update));
      return;
    }
    for (const publication of update.publications) {
      this.#unread.push(publication);
    }
    const excess = this.#unread.length - this.#read - this.#maxUnread;
    if (excess > 0) {
      this.dropped += excess;
      this.#unread.splice(0, this.#read + excess);
      this.#read = 0;
    }
    this.#wake();
  }

  /** @param {Error | null} error */
  [end](error) {
    if (!this.ended) {
      this.ended = true;
      this.error = error;
      this.#setClosed();
      this.#wake();
    }
  }

  #wake() {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) {
      resolve();
    }
  }
}

/** What the peer subscribes to here, on this connection. */
export class Topic {
  /** Whether the peer still wants it. */
  isOpen = true;

  /** Called when the peer has ended it, or the connection has. @type {() => void} */
  onEnded = () => {};

  #send;
  #close;

  /**
   * @param {(payload: string, attachments: AttachmentSource[]) => boolean} send
   * @param {() => void} close
   */
  constructor(send, close) {
    this.#send = send;
    this.#close = close;
  }

  /**
   * Publish. Returns whether the topic is still open.
   *
   * @param {string} payload
   * @param {AttachmentSource[]} [attachments]
   * @returns {boolean}
   */
  update(payload, attachments = []) {
    return this.isOpen && this.#send(payload, attachments);
  }

  /** End it: the peer is told. */
  close() {
    if (this.isOpen) {
      this.isOpen = false;
      this.#close();
    }
  }

  [end]() {
    if (this.isOpen) {
      this.isOpen = false;
      tell(this.onEnded);
    }
  }
}

/**
 * Call a function after so many milliseconds, also after more than a timer can count.
 *
 * @param {number} delayMs
 * @param {() => void} call
 * @returns {ReturnType<typeof setTimeout>}
 */
function later(delayMs, call) {
  return setTimeout(call, Math.min(delayMs, MOST_MS));
}

const MOST_MS = 0x7fff_ffff; // 25 days; more would be none

/**
 * Call a function of the program's. What it throws is the program's to see, and disturbs nothing
 * here: it becomes an uncaught error.
 *
 * @param {() => void} call
 */
function tell(call) {
  try {
    call();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

// ---- one connection ---------------------------------------------------------------------------

/** One WebSocket with its `Peer`. */
class Connection {
  /** @type {Promise<void>} */
  closed;

  #url;
  #how;
  #socket;
  #heard = true; // since the last look
  #asking = false;
  #over = false;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #heartbeat;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #deadline;
  /** @type {() => void} */
  #setClosed = () => {};

  /**
   * @param {string} url
   * @param {typeof globalThis.WebSocket} WebSocket
   * @param {{limits: Readonly<Limits>, timeoutMs: number, heartbeatMs: number,
   *   hello: () => Promise<string>, echo: () => Promise<void>, take: (event: Event) => void}} how
   */
  constructor(url, WebSocket, how) {
    this.#url = url;
    this.#how = how;
    this.peer = new Peer("client", how.limits);
    this.closed = new Promise((resolve) => {
      this.#setClosed = resolve;
    });
    try {
      this.#socket = new WebSocket(url);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new BadArgument(`no WebSocket to ${url} can be: ${why}`);
    }
    this.#socket.binaryType = "arraybuffer";
    this.#socket.onopen = () => this.#greet();
    this.#socket.onmessage = (message) => this.#received(message.data);
    // An error is the end, too: Node 20 tells of no close of what could not be opened.
    this.#socket.onerror = (event) => {
      const why = "message" in event && event.message ? String(event.message) : NO_ANSWER;
      this.#ended(new ConnectionLost(`no connection to ${url} (${why})`));
      this.#setClosed();
    };
    this.#socket.onclose = ({ code, reason }) => {
      const why = reason || (code === 1006 ? NO_ANSWER : `code ${code}`);
      this.#ended(new ConnectionLost(`${url} closed the connection (${why})`));
      this.#setClosed();
    };
    this.#deadline = later(how.timeoutMs, () => {
      this.fail(
        Code.PROTOCOL_ERROR,
        "no welcome",
        new TimedOut(`${url} did not welcome us within ${how.timeoutMs} ms`),
      );
    });
  }

  /** How many bytes wait for the network. */
  get bufferedBytes() {
    return this.#socket.bufferedAmount;
  }

  /** Send what the peer has to send. */
  flush() {
    for (const each of this.peer.takeOutput()) {
      if (this.#socket.readyState === OPEN) {
        // A Uint8Array of shared memory cannot be sent; the types of WebSocket say so.
        this.#socket.send(/** @type {string | Uint8Array<ArrayBuffer>} */ (each));
      }
    }
    if (this.peer.closing) {
      this.#socket.close(NORMAL);
    }
  }

  /**
   * End it with F.
   *
   * @param {number} code
   * @param {string} text
   * @param {UmqError} error what is told here
   */
  fail(code, text, error) {
    this.peer.fatal(code, text);
    this.flush();
    this.#ended(error);
  }

  /** End it in order. */
  close() {
    this.#stop();
    this.peer.receiveEnd(new ConnectionLost("the connection was closed"));
    const { readyState } = this.#socket;
    this.#socket.close(NORMAL);
    if (readyState === CONNECTING || readyState === CLOSED) {
      this.#setClosed(); // not every WebSocket tells of the end of one that never opened
    } else {
      const timer = setTimeout(this.#setClosed, CLOSING_MS); // a peer that does not answer
      this.closed.then(() => clearTimeout(timer));
    }
  }

  async #greet() {
    try {
      const hello = await this.#how.hello();
      if (!this.#over) {
        this.peer.hello(hello);
        this.flush();
      }
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      this.fail(Code.REJECTED, "no hello", new Refused(`no hello: ${text}`, Code.REJECTED));
    }
  }

  /** @param {string | ArrayBuffer} data */
  #received(data) {
    if (this.#over) {
      return;
    }
    this.#heard = true;
    const events =
      typeof data === "string"
        ? this.peer.receiveText(data)
        : this.peer.receiveBinary(new Uint8Array(data));
    for (const event of events) {
      if (event.type === "closed") {
        this.flush();
        this.#ended(event.error);
      } else {
        this.#tell(event);
      }
    }
    this.flush();
  }

  /** @param {Event} event */
  #tell(event) {
    if (this.#over) {
      return; // the one before has ended us
    }
    if (event.type === "welcome") {
      this.#welcomed();
    }
    try {
      this.#how.take(event);
    } catch (error) {
      if (!(error instanceof Violation)) {
        throw error;
      }
      const text = `${this.#url} is no MoteMQ broker: ${error.message}`;
      this.fail(error.code, "Protocol error", new ConnectionLost(text));
    }
  }

  #welcomed() {
    clearTimeout(this.#deadline);
    const { heartbeatMs } = this.#how;
    if (heartbeatMs > 0) {
      this.#heartbeat = setInterval(() => this.#look(), heartbeatMs);
    }
  }

  /** The API of WebSocket has no ping: ask, and give up who says nothing. */
  #look() {
    if (this.#heard) {
      this.#heard = false;
      this.#asking = false;
    } else if (!this.#asking) {
      this.#asking = true;
      this.#how.echo();
    } else {
      const { heartbeatMs } = this.#how;
      const text = `${this.#url} said nothing for ${2 * heartbeatMs} ms`;
      this.fail(Code.UNAVAILABLE, "no answer", new ConnectionLost(text));
    }
  }

  /** @param {UmqError} error */
  #ended(error) {
    if (!this.#over) {
      this.#stop();
      this.peer.receiveEnd(error);
      this.#how.take({ type: "closed", error, byPeer: true });
    }
  }

  #stop() {
    this.#over = true;
    clearTimeout(this.#deadline);
    clearInterval(this.#heartbeat);
  }
}

const CONNECTING = 0;
const OPEN = 1;
const CLOSED = 3;
const NORMAL = 1000;
const NO_ANSWER = "no answer, or a refusal"; // a browser does not tell more
const CLOSING_MS = 2000;

// ---- arguments --------------------------------------------------------------------------------

/**
 * Return the URL for a WebSocket.
 *
 * @param {string} url
 * @returns {string}
 */
export function socketUrl(url) {
  const found = /^(umq|ws|http)(s?):\/\/([^/?#]*)([^?#]*)(\?[^#]*)?$/i.exec(url);
  if (found === null) {
    const { location } = globalThis;
    if (url !== "" || location === undefined) {
      throw new BadArgument(`'${url}' is no address of a broker: umq://HOST:PORT, or wss://…`);
    }
    return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/umq`;
  }
  const [, scheme, secure, authority, path, query = ""] = found;
  if (authority.includes("@")) {
    throw new BadArgument("a secret does not belong in a URL: give {token} or {user, password}");
  }
  const needsPort = scheme.toLowerCase() === "umq" && !/:\d+$/.test(authority);
  const host = needsPort ? `${authority.replace(/:$/, "")}:${DEFAULT_PORT}` : authority;
  const where = `ws${secure.toLowerCase()}://${host}${path === "" || path === "/" ? "/umq" : path}`;
  try {
    return new URL(where + query).href;
  } catch {
    throw new BadArgument(`'${url}' is no address of a broker: umq://HOST:PORT, or wss://…`);
  }
}

/**
 * @param {unknown} body
 * @returns {{text: string | null, attachments: AttachmentSource[]}}
 */
function spellBody(body) {
  const bytes = asBytes(body);
  if (bytes !== null) {
    return { text: null, attachments: [bytes] };
  }
  let text;
  try {
    text = typeof body === "string" ? body : JSON.stringify(body);
  } catch (error) {
    throw new BadArgument(`no JSON can say this: ${/** @type {Error} */ (error).message}`, {
      cause: error,
    });
  }
  if (text === undefined) {
    throw new BadArgument(`${typeof body} cannot be sent: give text, bytes or a value for JSON`);
  }
  return { text, attachments: [] };
}

/**
 * Spell a body that the broker is told: long text is an attachment, which is no longer than it is.
 *
 * @param {unknown} body
 * @returns {{text: string | null, attachments: AttachmentSource[]}}
 */
function spellForBroker(body) {
  const spelled = spellBody(body);
  const { text } = spelled;
  if (text === null || text.length <= LONGEST_BODY_IN_TEXT || LONE_SURROGATE.test(text)) {
    return spelled;
  }
  return { text: null, attachments: [new TextEncoder().encode(text)] };
}

/** Characters. */
const LONGEST_BODY_IN_TEXT = 65_536;
/** Bytes of a call's text before its payload. */
const LONGEST_HEAD = 64;

/**
 * @param {unknown} answer
 * @returns {{payload: string, attachments: AttachmentSource[]}}
 */
function spellAnswer(answer) {
  if (answer === undefined) {
    return { payload: "", attachments: [] };
  }
  if (answer !== null && typeof answer === "object" && "attachments" in answer) {
    const { payload = "", attachments } = /** @type {any} */ (answer);
    return { payload: String(payload), attachments };
  }
  const { text, attachments } = spellBody(answer);
  return { payload: text ?? "", attachments };
}
