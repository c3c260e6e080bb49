/* The dead, many at once, ports, and long streams. */

import { strict as assert } from 'node:assert'
import { createHash } from 'node:crypto'

import { Sandbox, SandboxNotFoundError, TimeoutError } from 'e2b'

import {
    api, group, NAMES, port, refused, sandboxOf, thrown, until,
} from './harness.mjs'

const CHUNK = 1 << 20

/* what is long is so once; TLS has its own windows, not its own bounds */
const SIZE = (NAMES ? 16 : 100) * CHUNK

/* of a machine that is busy */
const LONG = { requestTimeoutMs: 170_000 }
const LONG_RUN = { timeoutMs: 170_000 }


group('dead', async (check) => {
    const sandbox = await Sandbox.create()
    const running = await sandbox.commands.run('sleep 100',
                                               { background: true })

    await check('streams of what is killed break', async () => {
        const end = thrown(running.wait())
        await sandbox.kill()
        await end
    })

    await check('every plane says so', async () => {
        assert.equal(await sandbox.isRunning(), false)
        await refused(sandbox.commands.run('true'), SandboxNotFoundError)
        await refused(sandbox.commands.list(), TimeoutError)
        await refused(sandbox.files.read('a'), TimeoutError)
        await refused(sandbox.files.write('a', 'b'), TimeoutError)
        await refused(sandbox.files.exists('a'), TimeoutError)
        await refused(sandbox.getInfo(), SandboxNotFoundError)
        await refused(sandbox.setTimeout(1_000), SandboxNotFoundError)

        const response = await port(sandbox.sandboxId, 8000, '/')
        assert.equal(response.status, 502)
        assert.deepEqual(await response.json(), {
            sandboxId: sandbox.sandboxId,
            message: 'The sandbox was not found', code: 502 })
    })

    await check('a token of another one', async () => {
        const one = await sandboxOf(check, Sandbox)
        const response = await port(one.sandboxId, 49983, '/files?path=a', {
            headers: { 'X-Access-Token': '0'.repeat(64) } })
        assert.equal(response.status, 401)
        assert.equal((await response.json()).code, 401)

        const none = await port(one.sandboxId, 49983,
                                '/filesystem.Filesystem/Stat', {
            method: 'POST', body: '{"path":"/"}',
            headers: { 'Content-Type': 'application/json' } })
        assert.equal(none.status, 401)
        assert.equal((await none.json()).code, 'unauthenticated')
    })
})


group('many', async (check) => {
    await check('twenty at once', async () => {
        const work = async (_, n) => {
            const sandbox = await Sandbox.create({ metadata: { n: `${n}` } })

            try {
                await sandbox.files.write('n', `${n}`)
                const { stdout } = await sandbox.commands.run('cat n')
                assert.equal(stdout, `${n}`)
                assert.equal((await sandbox.getInfo()).metadata.n, `${n}`)
            } finally {
                assert.equal(await sandbox.kill(), true)
            }
        }

        await Promise.all(Array.from({ length: 20 }, work))
    })

    await check('more than the quota', async () => {
        if (!process.env.QUOTA_KEY)
            return

        const headers = { 'X-API-Key': process.env.QUOTA_KEY }
        const first = await api('POST', '/v2/sandboxes',
                                { templateID: 'base' }, headers)
        assert.equal(first.status, 201)

        const second = await api('POST', '/v2/sandboxes',
                                 { templateID: 'base' }, headers)
        assert.equal(second.status, 429)
        assert.equal(second.json.code, 429)
        assert.equal(second.headers.get('Retry-After'), null)

        const id = first.json.sandboxID
        const other = await api('GET', `/sandboxes/${id}`)
        assert.equal(other.status, 404)
        await api('DELETE', `/sandboxes/${id}`, undefined, headers)
    })
})


group('ports', async (check) => {
    const sandbox = await sandboxOf(check, Sandbox)
    const id = sandbox.sandboxId

    /* where hosts have no names, the native API is below /v1/ */
    const path = NAMES ? 'v1/sandboxes' : 'sandboxes'

    await check('a server in the sandbox', async () => {
        await sandbox.files.write(path, 'of the app')
        await sandbox.commands.run('exec python3 -m http.server 8000',
                                   { background: true, timeoutMs: 0 })

        const answer = await until(async () => {
            const response = await port(id, 8000, `/${path}`)
            return response.status === 200 && response.text()
        })
        assert.equal(answer, 'of the app')

        const host = sandbox.getHost(8000)
        assert.equal(host, `8000-${id}.${host.split('.').slice(1).join('.')}`)

        if (NAMES) {
            const response = await fetch(`https://${host}/${path}`)
            assert.equal(await response.text(), 'of the app')
        }
    })

    await check('a port that is closed', async () => {
        const response = await port(id, 8001, '/')
        assert.equal(response.status, 502)
        assert.deepEqual(await response.json(), {
            sandboxId: id, port: 8001, code: 502,
            message: 'The sandbox is running but port is not open' })
    })

    await check('ports that ask for a token', async () => {
        const mine = await sandboxOf(check, Sandbox, {
            network: { allowPublicTraffic: false } })
        const token = mine.trafficAccessToken

        assert.ok(token)
        const bare = await port(mine.sandboxId, 8000, '/')
        assert.equal(bare.status, 403)
        const let_in = await port(mine.sandboxId, 8000, '/', {
            headers: { 'E2B-Traffic-Access-Token': token } })
        assert.equal(let_in.status, 502)
    })
})


/* Pieces that are no copies of each other, and their digest. */
function pieces() {
    const hash = createHash('md5')
    const piece = Buffer.alloc(CHUNK, 'abcdefghijklmnop')
    let left = SIZE / CHUNK

    const stream = new ReadableStream({
        pull(controller) {
            if (left === 0)
                return controller.close()

            const own = Buffer.from(piece)

            own.writeUInt32LE(left--)
            hash.update(own)
            controller.enqueue(own)
        },
    })

    return { stream, digest: () => hash.digest('hex') }
}


group('streams', async (check) => {
    const sandbox = await sandboxOf(check, Sandbox)
    let digest

    await check(`${SIZE >> 20} MB in`, async () => {
        const data = pieces()

        await sandbox.files.write('big', data.stream,
                                  { useOctetStream: true, ...LONG })
        digest = data.digest()
        const { stdout } = await sandbox.commands.run('md5sum < big',
                                                      LONG_RUN)
        assert.equal(stdout, `${digest}  -\n`)
    })

    await check(`${SIZE >> 20} MB out`, async () => {
        const hash = createHash('md5')

        const stream = await sandbox.files.read('big', { format: 'stream',
                                                         ...LONG })

        for await (const part of stream)
            hash.update(part)

        assert.equal(hash.digest('hex'), digest)
    })

    await check(`${SIZE >> 20} MB of output`, async () => {
        const line = '0123456789abcde\n'
        const whole = createHash('md5').update(line.repeat(SIZE / 16))
        const hash = createHash('md5')
        let length = 0

        await sandbox.commands.run(`yes ${line.trim()} | head -c ${SIZE}`, {
            ...LONG_RUN,
            onStdout: (text) => {
                length += text.length
                hash.update(text, 'latin1')
            } })
        assert.equal(length, SIZE)
        assert.equal(hash.digest('hex'), whole.digest('hex'))
    })
})
