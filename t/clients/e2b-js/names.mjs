/* Before everything else: all names below the domain are one address. */

import dns from 'node:dns'

const domain = process.env.E2B_DOMAIN
const address = process.env.ADDRESS
const lookup = dns.lookup

dns.lookup = (name, options, done) => {
    if (!domain || !name.endsWith(`.${domain}`))
        return lookup(name, options, done)

    if (typeof options === 'function')
        return process.nextTick(options, null, address, 4)

    if (options?.all)
        return process.nextTick(done, null, [ { address, family: 4 } ])

    return process.nextTick(done, null, address, 4)
}
