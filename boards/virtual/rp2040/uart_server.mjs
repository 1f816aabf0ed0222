// A UART's line as a TCP server on loopback: raw bytes, one client at a time.

import net from "node:net";

const PAUSE_ABOVE_BYTES = 16 * 1024;
const MAX_UNREAD_BYTES = 256 * 1024;

export class UartServer {
  /** @param onBytes called when bytes have come for the board */
  constructor(onBytes) {
    this.onBytes = onBytes;
    this.client = null;
    this.incoming = [];
    this.incomingBytes = 0;
    this.position = 0; // in incoming[0]
    this.outgoing = [];
  }

  /** Listen on a free port; resolves to it. */
  listen() {
    this.server = net.createServer((socket) => this.accept(socket));
    this.server.maxConnections = 8;
    return new Promise((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen(0, "127.0.0.1", () => resolve(this.server.address().port));
    });
  }

  accept(socket) {
    // A line has one other end. The newcomer wins: the old one may be a peer that died silently.
    this.client?.destroy();
    this.client = socket;
    this.discard();
    this.outgoing = [];
    socket.setNoDelay(true);
    socket.on("data", (bytes) => {
      this.incoming.push(bytes);
      this.incomingBytes += bytes.length;
      if (this.incomingBytes > PAUSE_ABOVE_BYTES) socket.pause();
      this.onBytes();
    });
    socket.on("error", () => socket.destroy()); // a reset by the peer ends it like a close
    socket.on("close", () => {
      if (this.client === socket) this.client = null;
    });
  }

  /** Throw away what waits for the board. */
  discard() {
    this.incoming = [];
    this.incomingBytes = 0;
    this.position = 0;
    this.client?.resume();
  }

  /** The next byte for the board, or -1. What a client sent before it left still arrives. */
  receive() {
    const head = this.incoming[0];
    if (!head) return -1;
    const byte = head[this.position];
    this.position += 1;
    this.incomingBytes -= 1;
    if (this.position === head.length) {
      this.incoming.shift();
      this.position = 0;
    }
    if (this.incomingBytes < PAUSE_ABOVE_BYTES / 2 && this.client?.isPaused()) this.client.resume();
    return byte;
  }

  /** Take a byte from the board; with nobody connected it is lost, as on an open wire. */
  transmit(byte) {
    if (!this.client) return;
    if (!this.outgoing.length) setImmediate(() => this.flush());
    this.outgoing.push(byte);
  }

  flush() {
    const bytes = Buffer.from(this.outgoing);
    this.outgoing = [];
    if (!this.client || !bytes.length) return;
    // The wire cannot wait: a client that does not read loses bytes rather than fill the memory.
    if (this.client.writableLength < MAX_UNREAD_BYTES) this.client.write(bytes);
  }
}
