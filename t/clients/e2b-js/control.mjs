/* The control plane. */

import { strict as assert } from 'node:assert'

import {
    ALL_TRAFFIC, Sandbox, SandboxNotFoundError, Secret, Template, Volume,
} from 'e2b'

import {
    API, api, group, KEY, refused, sandboxOf, thrown, until,
} from './harness.mjs'

const MARK = `${process.pid}-${Date.now()}`


async function all(pages) {
    const found = []

    while (pages.hasNext)
        found.push(...await pages.nextItems())

    return found
}


group('create', async (check) => {
    const metadata = { mark: MARK, 'a-b': 'b c', x: 'ä&=%/+' }
    const sandbox = await sandboxOf(check, Sandbox, 'base', {
        timeoutMs: 60_000, envs: { FOO: 'bar' }, metadata,
        allowInternetAccess: true,
    })
    const id = sandbox.sandboxId

    await check('an id of small letters and digits', async () => {
        assert.match(id, /^i[a-z0-9]{20,40}$/)
    })

    await check('isRunning', async () => {
        assert.equal(await sandbox.isRunning(), true)
    })

    await check('getInfo, of it and by id', async () => {
        const info = await sandbox.getInfo()
        const same = await Sandbox.getInfo(id)

        assert.deepEqual(same, info)
        assert.equal(info.sandboxId, id)
        assert.equal(info.templateId, 'base')
        assert.deepEqual(info.metadata, metadata)
        assert.equal(info.state, 'running')
        assert.ok(info.cpuCount >= 1 && info.memoryMB >= 128)
        assert.match(info.envdVersion, /^\d+\.\d+\.\d+$/)
        assert.deepEqual(info.lifecycle,
                         { onTimeout: 'kill', autoResume: false })
        assert.equal(Math.round((info.endAt - info.startedAt) / 1000), 60)
    })

    await check('envs', async () => {
        const { stdout } = await sandbox.commands.run('echo $FOO')
        assert.equal(stdout, 'bar\n')
    })

    await check('setTimeout, both ways', async () => {
        await sandbox.setTimeout(200_000)
        const long = await sandbox.getInfo()
        await Sandbox.setTimeout(id, 100_000)
        const short = await sandbox.getInfo()

        assert.ok(long.endAt - Date.now() > 150_000)
        assert.ok(short.endAt - Date.now() < 101_000)
    })

    await check('connect never ends it earlier', async () => {
        const before = await sandbox.getInfo()
        const again = await Sandbox.connect(id, { timeoutMs: 10_000 })
        const after = await again.getInfo()

        assert.equal(again.sandboxId, id)
        assert.equal(after.endAt.getTime(), before.endAt.getTime())
        assert.equal((await again.commands.run('echo hi')).stdout, 'hi\n')

        await sandbox.connect({ timeoutMs: 300_000 })
        const later = await sandbox.getInfo()
        assert.ok(later.endAt > before.endAt)
    })

    await check('list, by metadata of any letters', async () => {
        const found = await all(Sandbox.list({ query: { metadata } }))

        assert.deepEqual(found.map((s) => s.sandboxId), [ id ])
        assert.deepEqual(found[0].metadata, metadata)
        assert.equal(found[0].state, 'running')
    })

    await check('getMetrics', async () => {
        const figures = await until(async () => {
            const list = await sandbox.getMetrics()
            return list.length && list
        }, 20_000)
        const last = figures.at(-1)

        assert.ok(last.timestamp instanceof Date)
        assert.ok(Math.abs(last.timestamp - Date.now()) < 60_000)
        assert.ok(last.cpuCount >= 1 && last.cpuUsedPct >= 0)
        assert.ok(last.memUsed > 0 && last.memUsed < last.memTotal)
        assert.ok(last.memCache >= 0)
        assert.ok(last.diskTotal > last.diskUsed && last.diskUsed >= 0)
    })

    await check('getMetrics of a time before it was', async () => {
        const list = await sandbox.getMetrics({
            start: new Date(1e12), end: new Date(1.1e12) })
        assert.deepEqual(list, [])
    })

    await check('metrics of several, logs, refreshes', async () => {
        const many = await api('GET', `/sandboxes/metrics?sandbox_ids=${id}`)
        assert.equal(many.status, 200)
        assert.deepEqual(Object.keys(many.json.sandboxes), [ id ])

        const logs = await api('GET', `/v2/sandboxes/${id}/logs`)
        assert.equal(logs.status, 200)
        assert.ok(logs.json.logs.some((l) => /start/.test(l.message)))

        const old = await api('GET', `/sandboxes/${id}/logs?limit=1`)
        assert.equal(old.json.logEntries.length, 1)

        const { status } = await api('POST', `/sandboxes/${id}/refreshes`,
                                     { duration: 600 })
        assert.equal(status, 204)
    })

    await check('updateNetwork', async () => {
        let info = await sandbox.getInfo()
        assert.equal(info.allowInternetAccess, true)

        await sandbox.updateNetwork({ allowOut: [ 'a.example.org' ],
                                      denyOut: [ ALL_TRAFFIC ] })
        info = await sandbox.getInfo()
        assert.equal(info.allowInternetAccess, true)
        assert.deepEqual(info.network.allowOut, [ 'a.example.org' ])
        assert.deepEqual(info.network.denyOut, [ ALL_TRAFFIC ])

        await assert.rejects(sandbox.updateNetwork(
            { allowOut: [ 'elsewhere.test' ], denyOut: [ ALL_TRAFFIC ] }),
                             /allowOut/)

        await sandbox.updateNetwork({ denyOut: [ ALL_TRAFFIC ] })
        assert.equal((await sandbox.getInfo()).allowInternetAccess, false)
    })

    await check('create without the internet', async () => {
        const one = await Sandbox.create({ allowInternetAccess: false })
        assert.equal((await one.getInfo()).allowInternetAccess, false)
        await one.kill()
    })

    await check('create with some of it', async () => {
        const one = await Sandbox.create({ network: {
            allowOut: [ 'a.example.org' ], denyOut: [ ALL_TRAFFIC ] } })
        const info = await one.getInfo()
        assert.deepEqual(info.network.allowOut, [ 'a.example.org' ])
        await one.kill()

        await assert.rejects(Sandbox.create({ network: {
            allowOut: [ 'elsewhere.test' ] } }), /network\.allowOut/)
    })

    await check('kill, once', async () => {
        assert.equal(await sandbox.kill(), true)
        assert.equal(await sandbox.kill(), false)
        assert.equal(await Sandbox.kill(id), false)
        assert.equal(await sandbox.isRunning(), false)
    })
})


group('list', async (check) => {
    const metadata = { list: MARK }
    const made = []

    for (const n of [ '1', '2', '3' ]) {
        const sandbox = await sandboxOf(check, Sandbox, {
            metadata: { ...metadata, n } })
        made.push(sandbox.sandboxId)
    }

    const ids = (list) => list.map((s) => s.sandboxId)
    const newest = [ ...made ].reverse()

    await check('newest first, or oldest', async () => {
        const query = { metadata }

        assert.deepEqual(ids(await all(Sandbox.list({ query }))), newest)
        assert.deepEqual(ids(await all(Sandbox.list({ query, order: 'asc' }))),
                         made)
    })

    await check('by pages', async () => {
        const pages = Sandbox.list({ query: { metadata }, limit: 2 })
        const first = await pages.nextItems()

        assert.deepEqual(ids(first), newest.slice(0, 2))
        assert.equal(pages.hasNext, true)

        const rest = Sandbox.list({ query: { metadata }, limit: 2,
                                    nextToken: pages.nextToken })
        assert.deepEqual(ids(await rest.nextItems()), newest.slice(2))
        assert.equal(rest.hasNext, false)

        const up = Sandbox.list({ query: { metadata }, limit: 1,
                                  order: 'asc' })
        assert.deepEqual(ids(await all(up)), made)
    })

    await check('by state', async () => {
        assert.equal(await Sandbox.pause(made[1]), true)

        const of = async (...state) =>
            ids(await all(Sandbox.list({ query: { metadata, state } })))

        assert.deepEqual(await of('paused'), [ made[1] ])
        assert.deepEqual(await of('running'), [ made[2], made[0] ])
        assert.deepEqual(await of('running', 'paused'), newest)
    })

    await check('by template and time', async () => {
        const of = async (query) =>
            ids(await all(Sandbox.list({ query: { metadata, ...query } })))

        assert.deepEqual(await of({ template: 'base' }), newest)
        assert.deepEqual(await of({ template: 'code-interpreter-v1' }), [])
        assert.deepEqual(await of({ startedAfter: new Date(1e12) }), newest)
        assert.deepEqual(await of({
            startedAfter: new Date(Date.now() + 3_600_000) }), [])
    })
})


group('pause', async (check) => {
    const sandbox = await sandboxOf(check, Sandbox, {
        timeoutMs: 100_000, envs: { FOO: 'bar' } })
    const id = sandbox.sandboxId
    const sleeper = await sandbox.commands.run('sleep 100',
                                               { background: true })

    await check('pause, once', async () => {
        assert.equal(await sandbox.pause(), true)
        assert.equal((await sandbox.getInfo()).state, 'paused')
        assert.equal(await Sandbox.pause(id), false)
    })

    await check('what is paused does not run', async () => {
        assert.equal(await sandbox.isRunning(), false)
        await refused(sandbox.commands.run('true'), SandboxNotFoundError)
    })

    await check('connect resumes it, with all that it had', async () => {
        const again = await Sandbox.connect(id, { timeoutMs: 50_000 })
        assert.equal(await again.isRunning(), true)
        assert.equal((await again.getInfo()).state, 'running')

        const pids = (await again.commands.list()).map((p) => p.pid)
        assert.ok(pids.includes(sleeper.pid))
        assert.equal((await again.commands.run('echo $FOO')).stdout, 'bar\n')
    })

    await check('resume, of older clients', async () => {
        await sandbox.pause()
        const { status, json } = await api('POST', `/sandboxes/${id}/resume`,
                                           { timeout: 60 })
        assert.equal(status, 201)
        assert.equal(json.sandboxID, id)
        const again = await api('POST', `/sandboxes/${id}/resume`, {})
        assert.equal(again.status, 409)
        assert.equal(again.json.code, 409)
    })

    const mine = await sandboxOf(check, Sandbox, {
        timeoutMs: 1_000, lifecycle: { onTimeout: 'pause', autoResume: true },
    })

    await check('paused at its end, a call resumes it', async () => {
        const info = await mine.getInfo()
        assert.deepEqual(info.lifecycle,
                         { onTimeout: 'pause', autoResume: true })

        await until(async () => (await mine.getInfo()).state === 'paused')
        assert.equal((await mine.getInfo()).state, 'paused')
        assert.equal((await mine.commands.run('echo up')).stdout, 'up\n')
        assert.equal((await mine.getInfo()).state, 'running')
    })

    const short = await Sandbox.create({ timeoutMs: 1_000 })

    await check('or else gone', async () => {
        await until(async () => !await short.isRunning())
        await refused(short.getInfo(), SandboxNotFoundError)
    })
})


group('refused', async (check) => {
    const GONE = 'i0000000000000000000000000'

    await check('what is gone is not found', async () => {
        await refused(Sandbox.getInfo(GONE), SandboxNotFoundError)
        await refused(Sandbox.setTimeout(GONE, 1_000), SandboxNotFoundError)
        await refused(Sandbox.pause(GONE), SandboxNotFoundError)
        await refused(Sandbox.connect(GONE), SandboxNotFoundError)
        await refused(Sandbox.getMetrics(GONE), SandboxNotFoundError)
        await refused(Sandbox.updateNetwork(GONE, {}), SandboxNotFoundError)
        assert.equal(await Sandbox.kill(GONE), false)
        assert.equal(await Sandbox.kill('never-an-id'), false)
    })

    await check('a template that is not there', async () => {
        const error = await thrown(Sandbox.create('no-such-template'))
        assert.equal(error.statusCode ?? 404, 404)
        assert.match(error.message, /no-such-template/)
    })

    await check('more than the maximum, by its name', async () => {
        const body = (field, value) =>
            api('POST', '/v2/sandboxes', { templateID: 'base',
                                           [field]: value })

        for (const [ field, value ] of [
            [ 'timeout', 86_401 ], [ 'memoryMB', 1e9 ], [ 'cpuCount', 1e6 ],
            [ 'diskSizeMB', 1e9 ], [ 'gpu', 'A10' ],
        ]) {
            const { status, json } = await body(field, value)
            assert.equal(status, 400, field)
            assert.equal(json.code, 400)
            assert.match(json.message, new RegExp(field))
        }

        const { status, json } = await body('timeout', 0)
        assert.equal(status, 400)
        assert.match(json.message, /greater than 0/)
    })

    await check('a key that is none', async () => {
        const { status, json } = await api('GET', '/v2/sandboxes', undefined,
                                           { 'X-API-Key': '' })
        assert.equal(status, 401)
        assert.equal(json.code, 401)
    })

    await check('Bearer is a key, too', async () => {
        const response = await fetch(`${API}/v2/sandboxes`, {
            headers: { Authorization: `Bearer ${KEY}` } })
        assert.equal(response.status, 200)
    })

    await check('templates', async () => {
        assert.equal(await Template.exists('base'), true)
        assert.equal(await Template.exists('code-interpreter-v1'), true)
        assert.equal(await Template.exists('no-such-template'), false)
        assert.equal(await Sandbox.deleteSnapshot('no-such-one'), false)
    })

    const sandbox = await sandboxOf(check, Sandbox)

    await check('what there is not says so', async () => {
        const said = async (promise) => {
            const error = await thrown(promise)
            assert.match(error.message, /501/)
        }

        await said(sandbox.createSnapshot())
        await said(sandbox.fork())
        await said(sandbox.listSnapshots().nextItems())
        await said(Volume.create('v'))
        await said(Secret.create('s', 'x'))
        await said(Template.build(Template().fromBaseImage().runCmd('ls'),
                                  'mine'))
    })

    await check('an unknown route', async () => {
        const { status, json } = await api('GET', '/nothing/here')
        assert.equal(status, 404)
        assert.equal(json.code, 404)
    })

    await check('health', async () => {
        assert.equal((await api('GET', '/health')).status, 200)
    })
})
