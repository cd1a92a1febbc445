'use strict'
const native = require('./native.cjs')

exports.version = native.version
