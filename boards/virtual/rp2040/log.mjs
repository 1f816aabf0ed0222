// Messages of the emulator on stderr, capped: a firmware that loops over an unknown register
// would otherwise fill the disk within minutes.

const MAX_LINES = 500;

let lines = 0;
const said = new Set();

/** Write one line, unless it was said before or the log is full. */
export function log(message) {
  if (lines >= MAX_LINES || said.has(message)) return;
  said.add(message);
  lines += 1;
  const last = lines === MAX_LINES ? " (log full, nothing more will be written)" : "";
  process.stderr.write(`emulator: ${message}${last}\n`);
}

/** rp2040js' Logger interface. Unknown registers are `warn`; `debug` and `info` are dropped. */
export const chipLogger = {
  debug() {},
  info() {},
  warn(component, message) {
    log(`${component}: ${message}`);
  },
  error(component, message) {
    log(`${component}: error: ${message}`);
  },
};

/** Send what rp2040js says through console.* the same way. */
export function captureConsole() {
  for (const name of ["debug", "info", "log", "warn", "error"]) {
    console[name] = (...parts) => log(parts.join(" "));
  }
}
