/*
 * Runs npm for the install call, and tells what it has installed.
 *
 *   node npm.js RESULT plan|install online|offline ASKED... -- SPEC...
 *
 * plan: nothing is installed, and RESULT has what would be.  RESULT is
 * {"packages":[{"name","version"}, ...]}, of what was installed and of what was
 * asked for and is there.  What npm says goes where it always goes, and its
 * exit status is this program's.
 *
 * The operator's tarballs are a registry of the session's own meanwhile, so
 * that ranges and dependencies are found as in any other.
 */

'use strict';

const { execFileSync, spawn } = require('child_process');
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');
const os = require('os');
const path = require('path');
const zlib = require('zlib');

const STORES = [ '/opt/packages/npm', '/opt/packages',
                 '/opt/package-cache/npm', '/opt/package-cache' ];
const TARBALL_MAX = 256 * 1024 * 1024;
const LOCK = 'node_modules/.package-lock.json';


async function main(result, mode, network, ...rest) {
    const at = rest.indexOf('--');
    const asked = rest.slice(0, at);
    const wanted = rest.slice(at + 1);
    const before = packagesOf(LOCK);
    const store = readStore();
    const argv = [ 'install', '--no-audit', '--no-fund' ];

    if (network === 'offline' && store.size === 0) {
        argv.push('--offline');
    }

    const directory = fs.mkdtempSync(path.join(os.tmpdir(), '.install-'));
    let server = null;

    try {
        const cwd = mode === 'plan' ? copy(directory) : process.cwd();
        let status = 1;

        if (mode === 'plan') {
            argv.push('--package-lock-only', '--loglevel=error');
        }

        if (store.size !== 0) {
            server = await serve(store, network === 'online');
            status = await run([ ...argv, '--registry', server.address,
                                 '--omit-lockfile-registry-resolved',
                                 '--', ...wanted ],
                               cwd, network === 'online');
        }

        if (store.size === 0 || (status !== 0 && network === 'online')) {
            status = await run([ ...argv, '--', ...wanted ], cwd, false);
        }

        if (status === 0) {
            write(result, mode === 'plan'
                          ? fresh(packagesOf(path.join(cwd,
                                                       'package-lock.json')),
                                  before)
                          : told(packagesOf(LOCK), before, asked));
        }

        return status;

    } finally {
        if (server !== null) {
            server.close();
        }

        fs.rmSync(directory, { recursive: true, force: true });
    }
}


/* A place of its own with what npm begins from. */
function copy(directory) {
    for (const name of [ 'package.json', 'package-lock.json', '.npmrc' ]) {
        try {
            fs.copyFileSync(name, path.join(directory, name));

        } catch {
            /* there is none */
        }
    }

    return directory;
}


/* Its exit status; a trial says nothing where it fails. */
function run(argv, cwd, trial) {
    return new Promise((resolve) => {
        const pipe = trial ? 'pipe' : 'inherit';
        const child = spawn('npm', argv, { cwd,
                                           stdio: [ 'ignore', pipe, pipe ] });
        const said = [ [], [] ];

        if (trial) {
            child.stdout.on('data', (piece) => said[0].push(piece));
            child.stderr.on('data', (piece) => said[1].push(piece));
        }

        child.on('error', (e) => {
            process.stderr.write(`npm: ${e.message}\n`);
            resolve(127);
        });

        child.on('close', (code, signal) => {
            if (code === 0) {
                process.stdout.write(Buffer.concat(said[0]));
                process.stderr.write(Buffer.concat(said[1]));
            }

            resolve(signal ? 128 + os.constants.signals[signal] : code);
        });
    });
}


/*
 * ---- what there is -----------------------------------------------------
 */

/* By their places in the tree. */
function packagesOf(lock) {
    const found = new Map();
    let text;

    try {
        text = fs.readFileSync(lock, 'utf8');

    } catch {
        return found;
    }

    for (const [ place, one ] of Object.entries(JSON.parse(text).packages)) {
        const at = place.lastIndexOf('node_modules/');

        if (at !== -1 && typeof one.version === 'string') {
            found.set(place, [ one.name || place.slice(at + 13),
                               one.version ]);
        }
    }

    return found;
}


function fresh(after, before) {
    const packages = [];

    for (const [ place, [ name, version ] ] of after) {
        const was = before.get(place);

        if (was === undefined || was[1] !== version) {
            packages.push([ name, version ]);
        }
    }

    return packages;
}


function told(after, before, asked) {
    const packages = fresh(after, before);

    for (const name of asked) {
        const is = after.get('node_modules/' + name);

        if (is !== undefined
            && !packages.some((one) => one[0] === name))
        {
            packages.push(is);
        }
    }

    return packages;
}


function write(result, packages) {
    const list = packages.map(([ name, version ]) => ({ name, version }));

    fs.writeFileSync(result, JSON.stringify({ packages: list }),
                     { flag: 'wx', mode: 0o600 });
}


/*
 * ---- the operator's tarballs -------------------------------------------
 */

/* Name to version to { file, manifest }. */
function readStore() {
    const store = new Map();

    for (const directory of STORES) {
        let names;

        try {
            names = fs.readdirSync(directory);

        } catch {
            continue;
        }

        for (const name of names.filter((one) => one.endsWith('.tgz'))) {
            const file = path.join(directory, name);

            try {
                keep(store, file);

            } catch (e) {
                process.stderr.write(`npm: ${file}: ${e.message}\n`);
            }
        }
    }

    return store;
}


function keep(store, file) {
    const bytes = fs.readFileSync(file);
    const manifest = manifestOf(zlib.gunzipSync(bytes, {
        maxOutputLength: TARBALL_MAX }));
    const { name, version } = manifest;

    if (!store.has(name)) {
        store.set(name, new Map());
    }

    if (!store.get(name).has(version)) {
        const hash = crypto.createHash('sha512').update(bytes);

        store.get(name).set(version, {
            file, manifest, integrity: 'sha512-' + hash.digest('base64') });
    }
}


/* package.json is in the directory of the tarball's own, whatever that is
 * called. */
function manifestOf(tar) {
    for (let at = 0; at + 512 <= tar.length; ) {
        const name = tar.toString('utf8', at, at + 100).replace(/\0.*/s, '');
        const size = parseInt(tar.toString('latin1', at + 124, at + 136), 8);

        if (/^[^/]+\/package\.json$/.test(name)) {
            return JSON.parse(tar.toString('utf8', at + 512,
                                           at + 512 + size));
        }

        at += 512 + Math.ceil((size || 0) / 512) * 512;
    }

    throw new Error('has no package.json');
}


/* Where npm looks by itself: its own default, unless something is set.  null:
 * there is no npm that could tell, nor install. */
function upstream() {
    try {
        return execFileSync('npm', [ 'config', 'get', 'registry' ],
                            { encoding: 'utf8',
                              stdio: [ 'ignore', 'pipe', 'ignore' ] })
            .trim().replace(/\/*$/, '/');
    } catch {
        return null;
    }
}


/* What it does not have is looked for where it else would be. */
function serve(store, online) {
    const elsewhere = online ? upstream() : null;
    const server = http.createServer((request, response) => {
        const name = decodeURIComponent(request.url.slice(1));
        const file = files.get(request.url);

        if (file !== undefined) {
            fs.createReadStream(file).on('error', () => response.destroy())
                                     .pipe(response);

        } else if (store.has(name)) {
            response.setHeader('Content-Type', 'application/json');
            response.end(JSON.stringify(packument(name)));

        } else if (elsewhere !== null) {
            response.writeHead(302, {
                Location: elsewhere + request.url.slice(1) });
            response.end();

        } else {
            response.writeHead(404, { 'Content-Type': 'application/json' });
            response.end('{"error":"the network of this session is off, and '
                         + 'the packages of this server do not have it"}');
        }
    });

    const files = new Map();

    function packument(name) {
        const versions = {};
        let latest = null;

        for (const [ version, one ] of store.get(name)) {
            const url = '/-/' + encodeURIComponent(one.file);

            files.set(url, one.file);
            versions[version] = { ...one.manifest, dist: {
                tarball: server.address + url.slice(1),
                integrity: one.integrity } };
            latest = latest === null || newer(version, latest) ? version
                                                               : latest;
        }

        return { name, versions, 'dist-tags': { latest } };
    }

    return new Promise((resolve) => {
        server.listen(0, '127.0.0.1', () => {
            server.address = `http://127.0.0.1:${server.address().port}/`;
            server.unref();
            resolve(server);
        });
    });
}


/* A release before what comes ahead of one. */
function newer(a, b) {
    const parts = (version) => version.split('+')[0].split(/[.-]/);
    const ahead = [ a.includes('-'), b.includes('-') ];

    if (ahead[0] !== ahead[1]) {
        return ahead[1];
    }

    const [ x, y ] = [ parts(a), parts(b) ];

    for (let i = 0; i < Math.max(x.length, y.length); i++) {
        const order = (x[i] || '').localeCompare(y[i] || '', 'en',
                                                 { numeric: true });
        if (order !== 0) {
            return order > 0;
        }
    }

    return false;
}


main(...process.argv.slice(2)).then((status) => {
    process.exitCode = status;
});
