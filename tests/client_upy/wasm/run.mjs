// Runs a script on MicroPython for WebAssembly: node run.mjs PACKAGE SCRIPT [ARGUMENT]...
// PACKAGE is the npm package's folder. The script sees its neighbours, what $MICROPYPATH has, and
// those of its arguments that are files; it has no sockets and nothing else of this machine.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [package_, script, ...args] = process.argv.slice(2);
const { loadMicroPython } = await import(pathToFileURL(path.join(package_, "micropython.mjs")));

const micropython = await loadMicroPython({
  heapsize: 512 * 1024,
  linebuffer: true,
  stdout: (line) => process.stdout.write(line + "\n"),
});

function put(file) {
  micropython.FS.mkdirTree(path.dirname(file));
  micropython.FS.writeFile(file, fs.readFileSync(file));
}

function putFolder(folder) {
  for (const entry of fs.readdirSync(folder, { withFileTypes: true, recursive: false })) {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) putFolder(file);
    else if (/\.(py|mpy)$/.test(file)) put(file);
  }
}

const folders = process.env.MICROPYPATH.split(":").filter((folder) => !folder.startsWith("."));
folders.push(path.dirname(path.resolve(script)));
folders.forEach(putFolder);
args.filter((argument) => fs.existsSync(argument)).forEach(put);

const text = (value) => JSON.stringify(value);
micropython.runPython(
  `import sys; sys.path[:] = ${text(["", ".frozen", ...folders])}; ` +
    `sys.argv[:] = ${text([script, ...args])}`,
);
try {
  micropython.runPython(fs.readFileSync(script, "utf8"));
} catch (error) {
  if (error.type !== "SystemExit") process.stdout.write(`${error.message}\n`);
  process.exitCode = error.type === "SystemExit" && !/SystemExit: [1-9]/.test(error.message) ? 0 : 1;
}
