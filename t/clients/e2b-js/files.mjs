/* Files. */

import { strict as assert } from 'node:assert'

import {
    FileNotFoundError, FileType, InvalidArgumentError, Sandbox, SandboxError,
} from 'e2b'

import {
    API, group, NAMES, refused, sandboxOf, thrown, until,
} from './harness.mjs'


async function bytesOf(stream) {
    const parts = []

    for await (const part of stream)
        parts.push(part)

    return Buffer.concat(parts)
}


group('files', async (check) => {
    const sandbox = await sandboxOf(check, Sandbox)
    const { files, commands } = sandbox
    const text = 'Grüße, 世界\n'

    await check('write and read, in each form', async () => {
        const info = await files.write('a.txt', text)
        assert.deepEqual(
            { name: info.name, path: info.path, type: info.type },
            { name: 'a.txt', path: '/home/user/a.txt', type: 'file' })

        assert.equal(await files.read('/home/user/a.txt'), text)
        assert.equal(await files.read('~/a.txt'), text)

        const whole = Buffer.from(text)
        const bytes = await files.read('a.txt', { format: 'bytes' })
        const blob = await files.read('a.txt', { format: 'blob' })
        const stream = await files.read('a.txt', { format: 'stream' })

        assert.deepEqual(Buffer.from(bytes), whole)
        assert.deepEqual(Buffer.from(await blob.arrayBuffer()), whole)
        assert.deepEqual(await bytesOf(stream), whole)
    })

    await check('bytes, blobs and streams are written', async () => {
        const data = Uint8Array.from({ length: 70_000 }, (_, i) => i * 7)

        for (const each of [ data.buffer, new Blob([ data ]),
                             new Blob([ data ]).stream() ]) {
            await files.write('new/dir/data.bin', each)
            const back = await files.read('new/dir/data.bin',
                                          { format: 'bytes' })
            assert.deepEqual(Buffer.from(back), Buffer.from(data))
        }
    })

    await check('empty files', async () => {
        await files.write('empty', '')
        assert.equal(await files.read('empty'), '')
        assert.equal((await files.read('empty', { format: 'bytes' })).length,
                     0)
    })

    await check('several at once, names of any letters', async () => {
        const names = [ '/tmp/m/1', '/tmp/m/ä ö"2', '/tmp/m/世 界',
                        'relative', '/tmp/m/%41+&=?#' ]
        const made = await files.write(
            names.map((path) => ({ path, data: `of ${path}` })))

        assert.deepEqual(made.map((f) => f.path), names.map(
            (n) => n[0] === '/' ? n : `/home/user/${n}`))

        for (const name of names)
            assert.equal(await files.read(name), `of ${name}`)

        assert.deepEqual(await files.write([]), [])
    })

    await check('octets, gzip, metadata', async () => {
        const long = 'line\n'.repeat(10_000)

        for (const opts of [ { useOctetStream: true }, { gzip: true } ]) {
            await files.write('z.txt', long, opts)
            assert.equal(await files.read('z.txt'), long)
            assert.equal(await files.read('z.txt', { gzip: true }), long)
        }

        await files.write('m', 'x', { metadata: { author: 'A', k: 'v w' } })
        assert.deepEqual((await files.getInfo('m')).metadata,
                         { author: 'A', k: 'v w' })
        await files.rename('m', 'n')
        assert.deepEqual((await files.getInfo('n')).metadata,
                         { author: 'A', k: 'v w' })
        await files.write('n', 'y')
        assert.equal((await files.getInfo('n')).metadata, undefined)
    })

    await check('what has ended before it is read is whole', async () => {
        for (let n = 0; n < 12; n++) {
            const text = 'x'.repeat([ 1, 500, 60_000 ][n % 3])

            await files.write('whole', text, { useOctetStream: true })
            assert.equal(await files.read('whole'), text)
        }
    })

    await check('users', async () => {
        await files.write('r.txt', 'of root', { user: 'root' })
        assert.equal(await files.read('/root/r.txt', { user: 'root' }),
                     'of root')
        const info = await files.getInfo('/root/r.txt', { user: 'root' })
        assert.equal(info.owner, 'root')

        await files.write('/path/to/file', 'of user')
        assert.equal((await files.getInfo('/path/to/file')).owner, 'user')
        assert.equal((await files.getInfo('/path')).owner, 'user')
        const { stdout } = await commands.run('cat /path/to/file')
        assert.equal(stdout, 'of user')
    })

    await check('getInfo', async () => {
        const info = await files.getInfo('a.txt')
        assert.equal(info.name, 'a.txt')
        assert.equal(info.path, '/home/user/a.txt')
        assert.equal(info.type, FileType.FILE)
        assert.equal(info.size, Buffer.byteLength(text))
        assert.equal(info.mode, 0o644)
        assert.equal(info.permissions, '-rw-r--r--')
        assert.equal(`${info.owner} ${info.group}`, 'user user')
        assert.ok(Math.abs(info.modifiedTime - Date.now()) < 60_000)
        assert.equal(info.symlinkTarget, undefined)

        await commands.run('ln -s a.txt link; ln -s new dirlink')
        const link = await files.getInfo('link')
        assert.equal(link.name, 'link')
        assert.equal(link.symlinkTarget, '/home/user/a.txt')
        assert.equal(link.type, FileType.FILE)
        assert.equal((await files.getInfo('dirlink')).type, FileType.DIR)
    })

    await check('makeDir, exists', async () => {
        assert.equal(await files.makeDir('d/e/f'), true)
        assert.equal(await files.makeDir('d/e/f'), false)
        assert.equal(await files.exists('d/e/f'), true)
        assert.equal(await files.exists('d/nothing'), false)
        assert.equal((await files.getInfo('d')).permissions, 'drwxr-xr-x')
        await thrown(files.makeDir('a.txt'))
    })

    await check('list', async () => {
        await files.write([ 'l/b', 'l/a', 'l/c/d', 'l/c/e/f' ].map(
            (path) => ({ path, data: path })))

        const names = async (depth) =>
            (await files.list('l', { depth })).map((e) => e.path.slice(13))

        assert.deepEqual(await names(), [ 'a', 'b', 'c' ])
        assert.deepEqual(await names(2), [ 'a', 'b', 'c', 'c/d', 'c/e' ])
        assert.deepEqual(await names(3),
                         [ 'a', 'b', 'c', 'c/d', 'c/e', 'c/e/f' ])

        const [ a, , c ] = await files.list('l')
        assert.equal(`${a.type} ${a.size} ${c.type}`, 'file 3 dir')
        await thrown(files.list('l', { depth: 0 }))
        await refused(files.list('a.txt'), InvalidArgumentError)
    })

    await check('rename, remove', async () => {
        const moved = await files.rename('l/a', 'other/place/a')
        assert.equal(moved.path, '/home/user/other/place/a')
        assert.equal(await files.exists('l/a'), false)
        assert.equal(await files.read('other/place/a'), 'l/a')
        await files.remove('l')
        assert.equal(await files.exists('l'), false)
        await files.remove('l')
    })

    await check('what is not there', async () => {
        for (const call of [
            () => files.read('nope'), () => files.list('nope'),
            () => files.getInfo('nope'), () => files.rename('nope', 'x'),
            () => files.watchDir('nope', () => {}),
        ])
            await refused(call(), FileNotFoundError)

        const error = await thrown(files.read('/nope'))
        assert.equal(error.message, "path '/nope' does not exist")
    })

    await check('what is no file', async () => {
        await refused(files.read('d'), InvalidArgumentError,
                      /is a directory/)
        await thrown(files.write('d', 'x'))
    })

    await check('no place to write', async () => {
        const error = await thrown(files.write('/usr/x', 'x'))
        assert.ok(error instanceof SandboxError)
    })
})


group('watch', async (check) => {
    const sandbox = await sandboxOf(check, Sandbox)
    const { files, commands } = sandbox

    await files.makeDir('w/sub')

    await check('what happens, and nothing once stopped', async () => {
        const seen = []
        const has = (type, name) => until(
            () => seen.some((e) => e.type === type && e.name === name))
        const watch = await files.watchDir('w', (e) => { seen.push(e) })

        await files.write('w/a', 'x')
        assert.ok(await has('create', 'a'), JSON.stringify(seen))
        assert.ok(await has('write', 'a'), JSON.stringify(seen))
        await commands.run('chmod 600 w/a')
        assert.ok(await has('chmod', 'a'), JSON.stringify(seen))
        await files.rename('w/a', 'w/b')
        assert.ok(await has('rename', 'a'), JSON.stringify(seen))
        await files.remove('w/b')
        assert.ok(await has('remove', 'b'), JSON.stringify(seen))

        await files.write('w/sub/deep', 'x')
        await watch.stop()
        const before = seen.length
        await files.write('w/c', 'x')
        await commands.run('sleep 0.2')
        assert.ok(!seen.some((e) => e.name.includes('deep')))
        assert.equal(seen.length, before)
    })

    await check('the whole tree, with what the files are', async () => {
        const seen = []
        const has = (type, name) => until(
            () => seen.find((e) => e.type === type && e.name === name))
        const watch = await files.watchDir('w', (e) => { seen.push(e) }, {
            recursive: true, includeEntry: true })

        await files.write('w/sub/x', 'abc')
        const event = await has('write', 'sub/x')
        assert.equal(event?.entry.path, '/home/user/w/sub/x')
        assert.equal(event.entry.type, FileType.FILE)

        await files.makeDir('w/new')
        assert.ok(await has('create', 'new'))
        await files.write('w/new/y', 'y')
        assert.ok(await has('write', 'new/y'), JSON.stringify(seen))
        await watch.stop()
    })

    await check('the end of a sandbox is told', async () => {
        let done
        const end = new Promise((resolve) => { done = resolve })

        await files.watchDir('w', () => {}, { onExit: done })
        await sandbox.kill()
        await end
    })
})


group('urls', async (check) => {
    const sandbox = await sandboxOf(check, Sandbox)
    const { files } = sandbox
    const path = '/home/user/a b+ä.txt'

    /* without host names the SDK cannot tell a sandbox: by signature */
    const of = (url) => NAMES ? url : API + url.slice(url.indexOf('/files'))

    await files.write(path, 'signed')

    await check('downloadUrl', async () => {
        const response = await fetch(of(await sandbox.downloadUrl(path)))
        assert.equal(response.status, 200)
        assert.equal(await response.text(), 'signed')
    })

    await check('uploadUrl', async () => {
        const url = await sandbox.uploadUrl('/home/user/up.txt', {
            useSignatureExpiration: 60 })
        const form = new FormData()

        form.append('file', 'uploaded')
        const response = await fetch(of(url), { method: 'POST', body: form })
        assert.equal(response.status, 200)
        assert.deepEqual(await response.json(), [
            { name: 'up.txt', path: '/home/user/up.txt', type: 'file' } ])
        assert.equal(await files.read('up.txt'), 'uploaded')
    })

    const says = async (url, options) => {
        const response = await fetch(of(url), options)
        return [ response.status, await response.json() ]
    }
    const unauthorized = (message) => [ 401, { code: 401, message } ]

    await check('a signature for something else', async () => {
        const url = await sandbox.downloadUrl(path)

        assert.deepEqual(
            await says(url.replace('signature=v1_', 'signature=v1_A')),
            unauthorized('invalid signature'))
        assert.deepEqual(
            await says(url.replace('a+b', 'c')),
            unauthorized('invalid signature'))
        assert.deepEqual(
            await says(url, { method: 'POST', body: new FormData() }),
            unauthorized('invalid signature'))
    })

    await check('a signature that is over', async () => {
        const url = await sandbox.downloadUrl(path, {
            useSignatureExpiration: -10 })
        assert.deepEqual(await says(url),
                         unauthorized('signature is already expired'))
    })
})
