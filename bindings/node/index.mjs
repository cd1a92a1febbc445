import native from './native.cjs'

export const version = native.version
