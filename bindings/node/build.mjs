// Builds the native module and puts it beside the package's own files.
import { spawnSync } from 'node:child_process'
import { copyFileSync, renameSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import path from 'node:path'

const here = path.dirname(fileURLToPath(import.meta.url))
const build = spawnSync('cargo', ['build', '--package', 'forklift-node', '--message-format', 'json-render-diagnostics'], {
  cwd: here,
  stdio: ['ignore', 'pipe', 'inherit'],
  maxBuffer: 1 << 28,
})
if (build.status !== 0) {
  console.error('cargo build --package forklift-node failed')
  process.exit(1)
}
const library = build.stdout
  .toString()
  .split('\n')
  .filter((line) => line.startsWith('{'))
  .map((line) => JSON.parse(line))
  .filter((message) => message.reason === 'compiler-artifact' && message.target.name === 'forklift_node')
  .flatMap((message) => message.filenames)
  .find((file) => /\.(so|dylib|dll)$/.test(file))
const target = path.join(here, 'forklift.node')
copyFileSync(library, `${target}.tmp`)
renameSync(`${target}.tmp`, target)
