'use strict'
// Loads the native module: FORKLIFT_NATIVE names another file than the one beside this one.
const path = require('node:path')
const file = process.env.FORKLIFT_NATIVE || path.join(__dirname, 'forklift.node')
try {
  module.exports = require(file)
} catch (cause) {
  throw new Error(`forklift: the native module ${file} does not load; build it with "npm run build" or name one in FORKLIFT_NATIVE`, { cause })
}
