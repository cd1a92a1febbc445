/** Version of the native library, such as `0.1.0`. */
export function version(): string
