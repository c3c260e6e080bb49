"""Packages and the servers that have them, for tests.

  packages.py make DIR < JSON     a list of packages, each written to DIR/pip
                                  or DIR/npm: {"manager", "name", "version",
                                  "files": {PATH: TEXT}, "requires": [...],
                                  "setup": TEXT}; setup makes it an sdist
  packages.py serve DIR HOST [CERT KEY]
                                  "/simple/NAME/" for pip, "/NAME" for npm;
                                  prints its port, then each request's path
                                  and the header X-Test, if any
"""

import base64
import hashlib
import http.server
import io
import json
import os
import re
import socketserver
import ssl
import sys
import tarfile
import urllib.parse
import zipfile


def normal(name):
    return re.sub(r'[-_.]+', '-', name).lower()


# ---- packages ---------------------------------------------------------------

def make(top):
    for package in json.load(sys.stdin):
        directory = os.path.join(top, package['manager'])
        os.makedirs(directory, exist_ok=True)

        if package['manager'] == 'npm':
            tgz(directory, package)
        elif 'setup' in package:
            sdist(directory, package)
        else:
            wheel(directory, package)


def metadata(p):
    return ('Metadata-Version: 2.1\nName: %s\nVersion: %s\n'
            % (p['name'], p['version'])
            + ''.join('Requires-Dist: %s\n' % r
                      for r in p.get('requires', [])))


def wheel(directory, p):
    name = normal(p['name']).replace('-', '_')
    info = '%s-%s.dist-info/' % (name, p['version'])
    files = dict(p.get('files', {}))
    files[info + 'METADATA'] = metadata(p)
    files[info + 'WHEEL'] = ('Wheel-Version: 1.0\nGenerator: test\n'
                             'Root-Is-Purelib: true\nTag: py3-none-any\n')
    files[info + 'RECORD'] = ''.join('%s,,\n' % path for path in
                                     [*files, info + 'RECORD'])

    path = '%s/%s-%s-py3-none-any.whl' % (directory, name, p['version'])
    with zipfile.ZipFile(path, 'w') as z:
        for path, text in files.items():
            z.writestr(path, text)


def tarball(path, files):
    with tarfile.open(path, 'w:gz') as tar:
        for name, text in files.items():
            data = text.encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def sdist(directory, p):
    top = '%s-%s' % (p['name'], p['version'])
    files = {'%s/%s' % (top, k): v for k, v in p.get('files', {}).items()}
    files[top + '/setup.py'] = p['setup']
    files[top + '/PKG-INFO'] = metadata(p)
    tarball('%s/%s.tar.gz' % (directory, top), files)


def tgz(directory, p):
    manifest = {'name': p['name'], 'version': p['version'],
                'main': 'index.js', 'scripts': p.get('scripts', {}),
                'dependencies': p.get('requires', {})}
    files = {'package/' + k: v for k, v in p.get('files', {}).items()}
    files['package/package.json'] = json.dumps(manifest)
    name = p['name'].lstrip('@').replace('/', '-')
    tarball('%s/%s-%s.tgz' % (directory, name, p['version']), files)


# ---- servers ----------------------------------------------------------------

class Index(http.server.BaseHTTPRequestHandler):

    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        pass

    def do_GET(self):
        path = urllib.parse.unquote(self.path)
        print('%s %s' % (path, self.headers.get('X-Test', '-')), flush=True)

        page = self.page(path)

        if page is None:
            self.send_response(404)
            page = 'text/plain', b'no such package\n'
        else:
            self.send_response(200)

        self.send_header('Content-Type', page[0])
        self.send_header('Content-Length', str(len(page[1])))
        self.end_headers()
        self.wfile.write(page[1])

    def page(self, path):
        if path.startswith('/files/'):
            name = path[len('/files/'):]
            manager = 'npm' if name.endswith('.tgz') else 'pip'
            try:
                with open('%s/%s/%s' % (TOP, manager, os.path.basename(name)),
                          'rb') as f:
                    return 'application/octet-stream', f.read()
            except OSError:
                return None

        if path.startswith('/simple/'):
            return self.simple(path.split('/')[2])

        return self.packument(path[1:])

    def simple(self, name):
        found = [one for one in listed('pip')
                 if normal(re.split(r'-\d', one)[0]) == normal(name)]
        if not found:
            return None

        return 'text/html', ('<!DOCTYPE html><html><body>' + ''.join(
            '<a href="/files/%s">%s</a>' % (one, one) for one in found)
            + '</body></html>').encode()

    def packument(self, name):
        versions = {}

        for one in listed('npm'):
            with open('%s/npm/%s' % (TOP, one), 'rb') as f:
                data = f.read()
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                manifest = json.load(tar.extractfile('package/package.json'))
            if manifest['name'] != name:
                continue

            digest = hashlib.sha512(data).digest()
            versions[manifest['version']] = {**manifest, 'dist': {
                'tarball': '%s://%s/files/%s' % (SCHEME,
                                                 self.headers['Host'], one),
                'integrity': 'sha512-' + base64.b64encode(digest).decode()}}

        if not versions:
            return None

        return 'application/json', json.dumps({
            'name': name, 'versions': versions,
            'dist-tags': {'latest': max(versions)}}).encode()


def listed(manager):
    try:
        return sorted(os.listdir('%s/%s' % (TOP, manager)))
    except OSError:
        return []


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self):
        # asks no resolver for the address's name
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]


def serve(host, cert=None, key=None):
    server = Server((host, 0), Index)

    if cert is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)

    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == '__main__':
    TOP = sys.argv[2]
    SCHEME = 'https' if len(sys.argv) > 4 else 'http'

    if sys.argv[1] == 'make':
        make(TOP)
    else:
        serve(*sys.argv[3:])
