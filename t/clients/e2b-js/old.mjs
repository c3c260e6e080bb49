/* SDKs of before, which know other paths and only names of hosts. */

import { strict as assert } from 'node:assert'

import {
    CommandExitError, Sandbox, SandboxNotFoundError, TimeoutError,
} from 'old-code-interpreter'

import { group, refused, sandboxOf } from './harness.mjs'


group('old', async (check) => {
    const sandbox = await sandboxOf(check, Sandbox, {
        timeoutMs: 60_000, metadata: { old: `${process.pid}` } })

    await check('create, connect, list, time', async () => {
        const again = await Sandbox.connect(sandbox.sandboxId)
        assert.equal(await again.isRunning(), true)
        await again.setTimeout(90_000)

        const pages = Sandbox.list({
            query: { metadata: { old: `${process.pid}` } } })
        const [ info ] = await pages.nextItems()
        assert.equal(info.sandboxId, sandbox.sandboxId)
        assert.equal(info.templateId, 'code-interpreter-v1')
        assert.ok(info.endAt - Date.now() > 70_000)
    })

    await check('commands and files', async () => {
        await sandbox.files.write('a', 'old')
        const { stdout } = await sandbox.commands.run('cat a')
        assert.equal(stdout, 'old')
        assert.equal(await sandbox.files.read('a'), 'old')
        await refused(sandbox.commands.run('exit 4'), CommandExitError)
    })

    await check('code', async () => {
        await sandbox.runCode('x = 20')
        assert.equal((await sandbox.runCode('x + 1')).text, '21')
        const context = await sandbox.createCodeContext({ cwd: '/tmp' })
        assert.equal((await sandbox.runCode('2', { context })).text, '2')
    })

    await check('pause and resume', async () => {
        assert.ok(await sandbox.pause())
        const again = await Sandbox.connect(sandbox.sandboxId)
        assert.equal((await again.runCode('x')).text, '20')
    })

    await check('kill', async () => {
        assert.equal(await sandbox.kill(), true)
        assert.equal(await sandbox.kill(), false)
        await refused(sandbox.runCode('1'), TimeoutError)
        await refused(sandbox.commands.run('true'), SandboxNotFoundError)
    })
})
