/* All groups, or those that are named. */

import { main, NAMES } from './harness.mjs'

await import('./control.mjs')
await import('./commands.mjs')
await import('./files.mjs')
await import('./code.mjs')
await import('./life.mjs')

if (NAMES)
    await import('./old.mjs')
else
    await import('./second.mjs')

await main(Number(process.env.WIDTH || 4))
