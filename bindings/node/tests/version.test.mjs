import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import test from 'node:test'

import * as imported from 'forklift'

const required = createRequire(import.meta.url)('forklift')
const manifest = readFileSync(new URL('../../../Cargo.toml', import.meta.url), 'utf8')
const version = /^version = "([^"]+)"/m.exec(manifest)[1]

test('package, library and manifest agree on the version', () => {
  assert.equal(imported.version(), version)
  assert.equal(required.version(), version)
  const pkg = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
  assert.equal(pkg.version, version)
})

test('import and require give the same names', () => {
  const names = (module) => Object.keys(module).filter((name) => name !== 'default' && name !== 'module.exports').sort()
  assert.deepEqual(names(imported), names(required))
})
