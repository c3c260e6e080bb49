/*
 * What the scripts of this directory share: groups of checks, run side by
 * side, a line of TAP for each check, and how a server is reached.
 *
 * STYLE is "one" where one address serves everything (E2B_API_URL,
 * E2B_SANDBOX_URL), "names" where hosts have names (E2B_DOMAIN, TLS).
 */

import { strict as assert } from 'node:assert'

export const STYLE = process.env.STYLE
export const NAMES = STYLE === 'names'
export const KEY = process.env.E2B_API_KEY
export const API = process.env.E2B_API_URL
      ?? `https://api.${process.env.E2B_DOMAIN}`

const SLOW = Number(process.env.SANDBOX_TEST_SLOW || 1)
const LIMIT = 180_000 * SLOW               /* that is: it hangs */

const groups = []
let lines = 0


export function within(ms) {
    return ms * SLOW
}


export function sleep(ms) {
    return new Promise((done) => setTimeout(done, ms))
}


/* Polls until the condition is true, and returns what it said last. */
export async function until(condition, ms = 30_000) {
    const end = Date.now() + within(ms)

    for (;;) {
        const value = await condition()

        if (value || Date.now() > end)
            return value

        await sleep(25)
    }
}


export function group(name, run) {
    groups.push({ name, run })
}


function told(ok, name, error) {
    lines++
    console.log(`${ok ? 'ok' : 'not ok'} - ${name.replaceAll('#', '')}`)

    if (ok)
        return

    /* of the stack, where the check is */
    const [ text, ...stack ] = (error?.stack ?? String(error))
        .split(/\n(?=    at )/)

    for (const line of [ ...text.split('\n'), ...stack.filter(
        (at) => /\.mjs/.test(at) && !/harness|node_modules/.test(at)) ])
        console.log(`# ${line}`)
}


async function limited(name, run) {
    const start = Date.now()
    let timer

    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error('takes too long')), LIMIT)
    })

    try {
        await Promise.race([ run(), late ])
        told(true, name)
    } catch (error) {
        told(false, name, error)
    } finally {
        clearTimeout(timer)
    }

    if (Date.now() - start > 1_000)
        console.log(`# ${name}: ${Date.now() - start} ms`)
}


/* Nobody waits for it, and a program of a user's would end. */
process.on('unhandledRejection', (error) => {
    told(false, 'no error comes unasked', error)
})


/* Runs all groups, at most so many at a time, and ends the process. */
export async function main(width) {
    const names = process.argv.slice(2)
    const todo = groups.filter((g) => !names.length || names.includes(g.name))

    async function worker() {
        for (let g = todo.shift(); g; g = todo.shift()) {
            const start = Date.now()
            const ends = []
            const check = (name, run) => limited(`${g.name}: ${name}`, run)

            check.finally = (run) => ends.unshift(run)

            try {
                await g.run(check)
            } catch (error) {
                told(false, `${g.name} goes to its end`, error)
            }

            for (const run of ends)
                await run().catch(() => {})

            console.log(`# ${g.name}: ${Date.now() - start} ms`)
        }
    }

    await Promise.all(Array.from({ length: width }, worker))

    console.log(`1..${lines}`)
    process.exit(0)
}


/* A sandbox that ends with the group. */
export async function sandboxOf(check, Sandbox, ...args) {
    const sandbox = await Sandbox.create(...args)

    check.finally(() => sandbox.kill())
    return sandbox
}


/* What a promise is rejected with. */
export async function thrown(promise) {
    try {
        await promise
    } catch (error) {
        return error
    }

    assert.fail('is not refused')
}


/* The classes' own names are minified in no version. */
export async function refused(promise, Class, text) {
    const error = await thrown(promise)

    assert.equal(error.constructor.name, Class.name, error.message)

    if (text)
        assert.match(error.message, text)

    return error
}


/* A request to the API, as a client of one's own makes it. */
export async function api(method, path, body, headers = {}) {
    const response = await fetch(API + path, {
        method,
        headers: { 'X-API-Key': KEY,
                   ...(body === undefined ? {}
                       : { 'Content-Type': 'application/json' }),
                   ...headers },
        body: body === undefined ? undefined : JSON.stringify(body),
    })
    const text = await response.text()
    let json

    try {
        json = JSON.parse(text)
    } catch { /* it is none */ }

    return { status: response.status, headers: response.headers, text, json }
}


/* The same to a port of a sandbox. */
export function port(id, number, path, options = {}) {
    const headers = { ...options.headers }
    let base = `https://${number}-${id}.${process.env.E2B_DOMAIN}`

    if (!NAMES) {
        base = API
        headers['E2b-Sandbox-Id'] = id
        headers['E2b-Sandbox-Port'] = String(number)
    }

    return fetch(base + path, { ...options, headers })
}


export function toSeconds(date) {
    return Math.round(date.getTime() / 1000)
}
