/* The code interpreter. */

import { strict as assert } from 'node:assert'

import { Sandbox, TimeoutError } from '@e2b/code-interpreter'

import {
    group, NAMES, refused, sandboxOf, thrown, until,
} from './harness.mjs'


/* A module that Python has in the sandbox. */
async function has(sandbox, name) {
    const { text } = await sandbox.runCode(
        'import importlib.util as u\n'
        + `print(u.find_spec('${name}') is not None)`)
        .then((x) => ({ text: x.logs.stdout.join('') }))
    return text === 'True\n'
}


group('code', async (check) => {
    const sandbox = await sandboxOf(check, Sandbox, { envs: { A: 'a' } })
    const run = (...args) => sandbox.runCode(...args)

    await check('the default contexts are there', async () => {
        const languages = (await sandbox.listCodeContexts())
            .map((c) => c.language)
        assert.ok(languages.includes('python'))
        assert.ok(languages.includes('javascript'))
    })

    await check('the value of the last line', async () => {
        const execution = await run('1 + 1')
        assert.equal(execution.text, '2')
        assert.equal(execution.executionCount, 1)
        assert.equal(execution.error, undefined)
        assert.equal(execution.results[0].isMainResult, true)
        assert.equal((await run('"abc"')).text, 'abc')
        assert.equal((await run('x = 5')).text, undefined)
        assert.equal((await run('x')).text, '5')
    })

    await check('output, line by line', async () => {
        const seen = []
        const execution = await run(
            'import sys\nprint("eins ä")\nprint("zwei", file=sys.stderr)', {
                onStdout: (m) => seen.push([ 'out', m.line ]),
                onStderr: (m) => seen.push([ 'err', m.line ]) })

        assert.deepEqual(seen.sort(), [ [ 'err', 'zwei\n' ],
                                        [ 'out', 'eins ä\n' ] ])
        assert.deepEqual(execution.logs, { stdout: [ 'eins ä\n' ],
                                           stderr: [ 'zwei\n' ] })
    })

    await check('text of any letters, whole', async () => {
        const { logs } = await run('print("世界😀" * 50_000)')
        assert.equal(logs.stdout.join(''), '世界😀'.repeat(50_000) + '\n')
    })

    await check('errors', async () => {
        let told
        const { error, results } = await run('1 / 0', {
            onError: (e) => { told = e } })

        assert.equal(error.name, 'ZeroDivisionError')
        assert.equal(error.value, 'division by zero')
        assert.match(error.traceback, /ZeroDivisionError/)
        assert.deepEqual(results, [])
        assert.equal(told.name, error.name)
        assert.equal((await run('def f(:')).error.name, 'SyntaxError')
    })

    await check('variables of one execution', async () => {
        const code = 'import os; print(os.getenv("A"), os.getenv("B"))'
        const out = async (opts) => (await run(code, opts)).logs.stdout[0]

        assert.equal(await out({ envs: { B: 'b' } }), 'a b\n')
        assert.equal(await out({ envs: { A: 'x' } }), 'x None\n')
        assert.equal(await out(), 'a None\n')
    })

    await check('results of each kind', async () => {
        const shown = []
        const { results } = await run(
            'from IPython.display import *\n'
            + 'display(HTML("<b>"), Markdown("*m*"), Latex("$x$"))\n'
            + 'display(JSON({"k": [1]}), SVG("<svg/>"), Javascript("j()"))', {
                onResult: (r) => shown.push(r) })

        if (!results.length)
            return

        assert.equal(shown.length, 6)
        assert.equal(results[0].html, '<b>')
        assert.equal(results[0].isMainResult, false)
        assert.equal(results[1].markdown, '*m*')
        assert.equal(results[2].latex, '$x$')
        assert.deepEqual(results[3].json, { k: [ 1 ] })
        assert.match(results[4].svg, /<svg/)
        assert.equal(results[5].javascript, 'j()')
    })

    await check('a data frame', async () => {
        if (NAMES || !await has(sandbox, 'pandas'))
            return

        const { results } = await run(
            'import pandas as pd\n'
            + 'pd.DataFrame({"a": [1, 2], "b": ["x", None]})')
        assert.deepEqual(results[0].data, { a: [ 1, 2 ], b: [ 'x', null ] })
        assert.match(results[0].html, /<table/)
    })

    await check('charts', async () => {
        if (NAMES || !await has(sandbox, 'matplotlib'))
            return

        const { results } = await run(`
            import matplotlib.pyplot as plt
            plt.bar(['A', 'B'], [4, 2])
            plt.title('T'); plt.xlabel('Name'); plt.ylabel('Size (cm)')
            plt.show()
        `)
        assert.equal(results.length, 1)
        assert.match(results[0].png, /^iVBOR/)
        const { chart } = results[0]
        assert.equal(`${chart.type} ${chart.title}`, 'bar T')
        assert.equal(`${chart.x_label} ${chart.y_label} ${chart.y_unit}`,
                     'Name Size (cm) cm')
        assert.deepEqual(chart.elements.map((e) => [ e.label, e.value ]),
                         [ [ 'A', 4 ], [ 'B', 2 ] ])

        const lines = await run(`
            f, (a, b) = plt.subplots(1, 2)
            a.plot([1, 2, 3], [4, 5, 6], label='l')
            b.pie([1, 3], labels=['p', 'q'])
            plt.show()
        `)
        const both = lines.results[0].chart
        assert.equal(both.type, 'superchart')
        assert.deepEqual(both.elements.map((e) => e.type), [ 'line', 'pie' ])
        assert.deepEqual(both.elements[0].elements[0].points,
                         [ [ 1, 4 ], [ 2, 5 ], [ 3, 6 ] ])
    })

    await check('contexts', async () => {
        const context = await sandbox.createCodeContext({ cwd: '/tmp' })
        assert.equal(context.language, 'python')
        assert.equal(context.cwd, '/tmp')

        await run('y = 1', { context })
        assert.match((await run('y')).error.value, /'y'/)
        assert.equal((await run('import os; (y, os.getcwd())',
                                { context })).text, "(1, '/tmp')")
        assert.equal((await sandbox.listCodeContexts()).at(-1).id,
                     context.id)

        await sandbox.restartCodeContext(context)
        assert.equal((await run('y', { context })).error.name, 'NameError')

        await sandbox.removeCodeContext(context.id)
        assert.ok(!(await sandbox.listCodeContexts())
            .some((c) => c.id === context.id))
        await thrown(run('1', { context }))
        await thrown(sandbox.removeCodeContext(context.id))
        await thrown(sandbox.restartCodeContext('nope'))
    })

    await check('bash, javascript, typescript', async () => {
        const out = async (code, language) => {
            const { logs, error } = await run(code, { language })
            assert.equal(error, undefined, error?.value)
            return logs.stdout.join('')
        }

        assert.equal(await out('v=1; echo "$((v + 1)) $PWD"', 'bash'),
                     '2 /home/user\n')

        const js = await run('1', { language: 'js' })

        /* "js" needs node in the sandbox; the doctor says so */
        if (js.error && /node/.test(js.error.value))
            return

        assert.equal(await out('console.log("hi")', 'javascript'), 'hi\n')
        assert.equal((await run('const z = 6; z * 7',
                                { language: 'js' })).text, '42')
        assert.equal((await run('"/home/user"', { language: 'js' })).text,
                     '/home/user')

        const ts = await run('const t: number = 3; console.log(t)',
                             { language: 'ts' })
        assert.ok(/need node/.test(ts.error?.value)
                  || ts.logs.stdout[0] === '3\n', ts.error?.value)
    })

    await check('a language that there is not', async () => {
        const error = await thrown(run('1', { language: 'cobol' }))
        assert.match(error.message, /^[45]\d\d |cobol/)
    })

    await check('who leaves interrupts, and no more', async () => {
        await run('kept = 7')
        await refused(run('import time; time.sleep(600)',
                          { timeoutMs: 1_000 }), TimeoutError)
        assert.equal((await run('kept')).text, '7')
    })

    await check('one after the other', async () => {
        const both = await Promise.all([
            run('import time; time.sleep(0.3); order = [1]; order'),
            run('order.append(2); order') ])
        const texts = both.map((e) => e.text ?? e.error.name).sort()

        /* whichever is first, they never run at once */
        assert.ok([ '[1, 2] [1]', 'NameError [1]', '[1] NameError' ]
            .includes(texts.join(' ')), texts.join(' '))
    })
})


group('code-dead', async (check) => {
    const sandbox = await sandboxOf(check, Sandbox)

    await check('killed while code runs', async () => {
        let runs
        const started = new Promise((done) => { runs = done })
        const cell = thrown(sandbox.runCode(
            'print(1, flush=True)\nimport time; time.sleep(30)',
            { onStdout: runs }))

        await started
        await sandbox.kill()
        await cell
    })

    await check('what is gone', async () => {
        await until(async () => !await sandbox.isRunning())
        await refused(sandbox.runCode('1'), TimeoutError)
    })
})
