/*
 * Another client of the protocol, in Python, which cannot be had here: its
 * requests as it makes them.
 */

import { strict as assert } from 'node:assert'

import { API, group, KEY, until } from './harness.mjs'

const BEARER = { Authorization: `Bearer ${KEY}` }


async function call(method, url, body, headers) {
    const response = await fetch(url, {
        method, headers,
        body: body === undefined ? undefined : JSON.stringify(body) })
    const bytes = Buffer.from(await response.arrayBuffer())

    return { status: response.status, bytes,
             json: () => JSON.parse(bytes.toString()) }
}


/* The messages of a stream; the last one is its end. */
function messages(bytes) {
    const found = []

    for (let at = 0; at < bytes.length;) {
        const length = bytes.readUInt32BE(at + 1)
        const text = bytes.toString('utf8', at + 5, at + 5 + length)

        found.push({ flags: bytes[at], ...JSON.parse(text) })
        at += 5 + length
    }

    return found
}


group('second', async (check) => {
    const made = await call('POST', `${API}/sandboxes`, {
        templateID: 'base', timeout: 120, envVars: { KEY: 'val' },
        metadata: { team: 'x' }, cpuCount: 1, memoryMB: 512,
        diskSizeMB: 512, secure: true, allow_internet_access: true,
    }, { ...BEARER, 'Content-Type': 'application/json' })
    assert.equal(made.status, 201, made.bytes.toString())
    const id = made.json().sandboxID

    check.finally(() => call('DELETE', `${API}/sandboxes/${id}`, undefined,
                             BEARER))

    const detail = (await call('GET', `${API}/sandboxes/${id}`, undefined,
                               BEARER)).json()
    const headers = { Authorization: 'Basic dXNlcjo=',
                      'X-Access-Token': detail.envdAccessToken,
                      'Content-Type': 'application/connect+json' }
    const rpc = (name, body) =>
        call('POST', `${detail.envdUrl}/${name}`, body, headers)
    const stream = async (name, body) => messages((await rpc(name,
                                                             body)).bytes)

    await check('GET connects', async () => {
        assert.ok(detail.envdAccessToken)
        assert.match(detail.envdUrl, /^https?:/)
        assert.equal(`${detail.cpuCount} ${detail.memoryMB}`, '1 512')
        assert.equal(detail.state, 'running')
    })

    await check('list', async () => {
        const list = await call('GET',
            `${API}/sandboxes?limit=20&offset=0&status=running`, undefined,
            BEARER)
        assert.ok(list.json().some((s) => s.sandboxID === id))
    })

    await check('commands', async () => {
        const all = await stream('process.Process/Start', {
            process: { cmd: 'printenv', args: [ 'KEY', 'MY' ],
                       envVars: { MY: 'v' } } })
        const data = all.filter((m) => m.event?.data)
            .map((m) => Buffer.from(m.event.data.stdout, 'base64'))

        assert.equal(Buffer.concat(data).toString(), 'val\nv\n')
        assert.equal(all.at(-1).flags, 2)
        assert.ok(all.some((m) => m.event?.end))
    })

    await check('a process by its number', async () => {
        const ended = stream('process.Process/Start',
                             { process: { cmd: 'cat', args: [] } })
        const { pid } = await until(async () => (await rpc(
            'process.Process/List', {})).json().processes?.[0])

        const input = await rpc('process.Process/SendInput',
                                { pid, data: 'yes\n' })
        assert.equal(input.status, 200, input.bytes.toString())
        const signal = await rpc('process.Process/SendSignal',
                                 { pid, signal: 15 })
        assert.equal(signal.status, 200, signal.bytes.toString())

        const text = (await ended).filter((m) => m.event?.data)
            .map((m) => Buffer.from(m.event.data.stdout, 'base64')).join('')
        assert.equal(text, 'yes\n')
    })

    await check('files', async () => {
        const form = new FormData()

        form.append('file', new Blob([ 'Hello' ]), 'hello.txt')
        const put = await fetch(
            `${detail.envdUrl}/files?path=/home/user/h.txt&username=user`,
            { method: 'POST', body: form,
              headers: { Authorization: headers.Authorization,
                         'X-Access-Token': headers['X-Access-Token'] } })
        assert.equal(put.status, 200)
        await put.arrayBuffer()

        const get = await call('GET',
            `${detail.envdUrl}/files?path=/home/user/h.txt`, undefined,
            headers)
        assert.equal(get.bytes.toString(), 'Hello')

        const stat = (await rpc('filesystem.Filesystem/Stat',
                                { path: '/home/user/h.txt' })).json()
        assert.equal((stat.entry ?? stat.result ?? stat).name, 'h.txt')
        const missing = await rpc('filesystem.Filesystem/Stat',
                                  { path: '/nope' })
        assert.equal(missing.status, 404)
    })

    await check('code', async () => {
        const run = async (body) =>
            (await rpc('code.CodeInterpreter/Execute', body)).json()
        const answer = await run({ code: 'print(1 + 1)',
                                   language: 'python', timeout: 30,
                                   envVars: { KEY: 'call' } })
        const { stdout } = answer.result ?? answer

        assert.equal(stdout, '2\n')

        const context = (await rpc('code.CodeInterpreter/CreateContext',
                                   { language: 'python' })).json()
        const contextId = context.contextId ?? context.id
              ?? context.context?.id
        assert.ok(contextId)
        await run({ code: 'x = 3', contextId })
        const again = await run({ code: 'print(x)', contextId })
        assert.equal((again.result ?? again).stdout, '3\n')
        const gone = await rpc('code.CodeInterpreter/RemoveContext',
                               { contextId })
        assert.equal(gone.status, 200)
    })

    await check('pause and resume', async () => {
        const json = { ...BEARER, 'Content-Type': 'application/json' }
        const pause = await call('POST', `${API}/sandboxes/${id}/pause`,
                                 undefined, BEARER)
        assert.equal(pause.status, 204)
        const resume = await call('POST', `${API}/sandboxes/${id}/resume`,
                                  { timeout: 60 }, json)
        assert.equal(resume.status, 201)
        const kill = await call('DELETE', `${API}/sandboxes/${id}`,
                                undefined, BEARER)
        assert.equal(kill.status, 204)
    })
})
