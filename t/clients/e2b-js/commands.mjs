/* Commands and terminals. */

import { strict as assert } from 'node:assert'

import {
    CommandExitError, InvalidArgumentError, Sandbox, TimeoutError,
} from 'e2b'

import {
    group, refused, sandboxOf, sleep, thrown, until, within,
} from './harness.mjs'


group('commands', async (check) => {
    const sandbox = await sandboxOf(check, Sandbox, {
        envs: { A: 'sandbox', B: 'sandbox' } })
    const { commands } = sandbox
    const out = async (cmd, opts) => (await commands.run(cmd, opts)).stdout

    await check('run', async () => {
        const result = await commands.run('echo out; echo err >&2')
        assert.equal(result.exitCode, 0)
        assert.equal(result.stdout, 'out\n')
        assert.equal(result.stderr, 'err\n')
        assert.equal(result.error || undefined, undefined)
    })

    await check('exit codes', async () => {
        const error = await refused(commands.run('echo no >&2; exit 3'),
                                    CommandExitError)
        assert.equal(error.exitCode, 3)
        assert.equal(error.stderr, 'no\n')
        assert.equal(error.error, 'exit status 3')
    })

    await check('who and where', async () => {
        assert.equal(await out('whoami; pwd; echo $HOME $USER'),
                     'user\n/home/user\n/home/user user\n')
        assert.equal(await out('whoami; echo $HOME', { user: 'root' }),
                     'root\n/root\n')
        assert.equal(await out('pwd', { cwd: '/tmp' }), '/tmp\n')
        assert.equal(await out('echo $E2B_SANDBOX $E2B_SANDBOX_ID'),
                     `true ${sandbox.sandboxId}\n`)
    })

    await check('variables: the call, then the sandbox', async () => {
        assert.equal(await out('echo $A $B', { envs: { B: 'call' } }),
                     'sandbox call\n')
    })

    await check('text of any kind', async () => {
        const text = 'äöü €\n!@#$%^&*()_+\n\t"\'\\'
        const quoted = text.replaceAll("'", "'\\''")
        assert.equal(await out(`printf %s '${quoted}'`), text)
        assert.equal((await out('yes ä | head -c 3000000')).length, 2_000_000)
    })

    await check('output as it comes', async () => {
        const seen = []
        const handle = await commands.run(
            'for i in 1 2 3; do echo $i; read answer; done', {
                background: true, stdin: true,
                onStdout: (text) => {
                    seen.push(text)
                    return handle.sendStdin('\n')
                } })

        assert.equal((await handle.wait()).stdout, '1\n2\n3\n')
        assert.deepEqual(seen, [ '1\n', '2\n', '3\n' ])
    })

    await check('no such directory', async () => {
        await refused(commands.run('pwd', { cwd: '/nowhere' }),
                      InvalidArgumentError, /nowhere/)
    })

    await check('background, list, connect, kill', async () => {
        const handle = await commands.run('echo first; sleep 100', {
            background: true, envs: { MINE: 'x' } })
        const entry = (await commands.list())
            .find((p) => p.pid === handle.pid)

        assert.equal(entry.cmd, '/bin/bash')
        assert.deepEqual(entry.args, [ '-l', '-c', 'echo first; sleep 100' ])
        assert.deepEqual(entry.envs, { MINE: 'x' })

        const second = await commands.connect(handle.pid)
        assert.equal(second.pid, handle.pid)
        assert.equal(await commands.kill(handle.pid), true)

        for (const each of [ handle, second ]) {
            const error = await refused(each.wait(), CommandExitError)
            assert.match(error.error, /killed/)
        }

        assert.equal(await commands.kill(handle.pid), false)
        assert.ok(!(await commands.list())
            .some((p) => p.pid === handle.pid))
    })

    await check('kill is over when it answers', async () => {
        const handle = await commands.run('exec sleep 100',
                                          { background: true })
        await handle.kill()
        await refused(commands.run(`kill -0 ${handle.pid}`),
                      CommandExitError)
    })

    await check('standard input', async () => {
        let seen = ''
        const handle = await commands.run('cat', {
            background: true, stdin: true,
            onStdout: (text) => { seen += text } })

        await commands.sendStdin(handle.pid, 'one\n')
        await until(() => seen === 'one\n')
        await handle.sendStdin(new TextEncoder().encode('zwei ä'))
        await commands.sendStdin(handle.pid, '')
        await commands.closeStdin(handle.pid)
        assert.equal((await handle.wait()).stdout, 'one\nzwei ä')
    })

    await check('no standard input', async () => {
        assert.equal(await out('cat'), '')
        const handle = await commands.run('sleep 100', { background: true })
        await thrown(commands.sendStdin(handle.pid, 'x'))
        await handle.kill()
    })

    await check('a time-out ends it', async () => {
        const error = await thrown(
            commands.run('echo $$ > pid; exec sleep 100',
                         { timeoutMs: 1_000 }))
        assert.equal(error.constructor.name, TimeoutError.name)
        const gone = () => commands.run('! kill -0 $(cat pid)')
            .then(() => true, () => false)
        assert.equal(await until(gone), true)
    })

    await check('who leaves does not end it', async () => {
        const handle = await commands.run(
            'for i in $(seq 300); do echo $i >> ticks; sleep 0.05; done',
            { background: true, timeoutMs: 0 })

        await handle.disconnect()
        const ticks = async () => Number(await out('wc -l < ticks'))
        const before = await ticks()
        assert.ok(await until(async () => await ticks() > before + 3))

        const late = await commands.connect(handle.pid)
        assert.equal(await late.kill(), true)
    })

    await check('a process of no name is not found', async () => {
        assert.equal(await commands.kill(999_999), false)
        await thrown(commands.connect(999_999))
    })

    await check('git', async () => {
        if (!await commands.run('command -v git').catch(() => null))
            return

        const { git } = sandbox

        await git.init('/home/user/repo', { initialBranch: 'main' })
        await git.configureUser('A', 'a@example.com')
        await sandbox.files.write('repo/a', 'a')
        await git.add('/home/user/repo')
        await git.commit('/home/user/repo', 'first')
        const status = await git.status('/home/user/repo')
        assert.equal(status.isClean, true)
        assert.equal(status.currentBranch, 'main')
    })
})


group('pty', async (check) => {
    const sandbox = await sandboxOf(check, Sandbox)
    const { pty } = sandbox
    const bytes = (text) => new TextEncoder().encode(text)

    await check('a terminal', async () => {
        let seen = ''
        const handle = await pty.create({
            cols: 80, rows: 24, envs: { ABC: 'xyz' }, cwd: '/tmp',
            onData: (data) => { seen += new TextDecoder().decode(data) } })

        await pty.sendInput(handle.pid, bytes('echo $ABC; pwd; stty size\n'))
        assert.ok(await until(() => /xyz\r\n\/tmp\r\n24 80\r\n/.test(seen)),
                  seen)

        await pty.resize(handle.pid, { cols: 100, rows: 30 })
        await pty.sendInput(handle.pid, bytes('stty size; tput cols\n'))
        assert.ok(await until(() => /30 100\r\n100\r\n/.test(seen)), seen)

        await pty.sendInput(handle.pid, bytes('exit 0\n'))
        assert.equal((await handle.wait()).exitCode, 0)
    })

    await check('left, and found again', async () => {
        const first = await pty.create({ cols: 80, rows: 24,
                                         onData: () => {} })
        await first.disconnect()
        await sleep(within(50))

        let seen = ''
        const second = await pty.connect(first.pid, {
            onData: (data) => { seen += new TextDecoder().decode(data) } })

        await pty.sendInput(first.pid, bytes('echo $((6 * 7))\n'))
        assert.ok(await until(() => /42\r\n/.test(seen)), seen)
        assert.equal(await pty.kill(first.pid), true)
        await thrown(second.wait())
        assert.equal(await pty.kill(first.pid), false)
    })
})
