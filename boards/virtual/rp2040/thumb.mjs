// Runs rp2040js' core up to a limit in one go.

/** Give `core` the fields `limit` (in cycles) and `run()`. */
export function makeRunnable(core) {
  core.limit = 0;
  core.run = () => {
    while (core.cycles < core.limit && !core.waiting) core.executeInstruction();
  };
}
