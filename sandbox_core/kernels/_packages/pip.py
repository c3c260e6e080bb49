"""Runs pip for the install call, and tells what it has installed.

  python3 -I pip.py RESULT plan|install|exact online|offline ASKED... -- REQ...

plan: nothing is installed, and RESULT has what would be.  exact: REQ names
all there is to be installed.  RESULT is {"packages":[{"name","version"}, ...]},
of what was installed and of what was asked for and is there.  What pip says
goes where it always goes, and its exit status is this program's.
"""

import importlib.metadata
import json
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile

REPORT_MAX = 64 * 1024 * 1024


def main(result, mode, network, *rest):
    at = rest.index('--')
    asked, wanted = rest[:at], rest[at + 1:]

    directory = tempfile.mkdtemp(prefix='.install-')
    try:
        report = os.path.join(directory, 'report.json')

        if network == 'online' and shown_have(wanted, mode, report):
            network = 'offline'

        status = run(command(mode, network, report) + ['--', *wanted])

        if status == 0:
            packages = installed(report)
            if mode != 'plan':
                packages += there(asked, packages)
            write(result, packages)
    finally:
        shutil.rmtree(directory, ignore_errors=True)

    return status


def shown_have(wanted, mode, report):
    """Whether the operator's own packages are enough: they come first."""
    if not os.environ.get('PIP_FIND_LINKS'):
        return False

    trial = command('plan', 'offline', report)
    if mode == 'exact':
        trial.append('--no-deps')

    return subprocess.run(trial + ['--', *wanted], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def command(mode, network, report):
    argv = [sys.executable, '-m', 'pip', 'install', '--no-input',
            '--report', report]

    if sys.prefix == sys.base_prefix:
        argv += ['--user', '--no-warn-script-location']
    if network == 'offline':
        argv += ['--no-index']
    if mode == 'plan':
        argv += ['--dry-run', '--quiet']
    if mode == 'exact':
        argv += ['--no-deps']

    return argv


def run(argv):
    status = subprocess.run(argv, stdin=subprocess.DEVNULL).returncode
    return status if status >= 0 else 128 - status


def installed(report):
    with open(report, encoding='utf-8') as f:
        items = json.loads(f.read(REPORT_MAX))['install']

    return [[item['metadata']['name'], item['metadata']['version']]
            for item in items]


def normal(name):
    return re.sub(r'[-_.]+', '-', name).lower()


def there(asked, packages):
    """What was asked for and needed no installing."""
    have = {normal(name) for name, _ in packages}
    path = [site.getusersitepackages(), *sys.path]
    found = []

    for name in asked:
        if normal(name) in have:
            continue
        for one in importlib.metadata.Distribution.discover(name=name,
                                                            path=path):
            found.append([one.metadata['Name'], one.version])
            have.add(normal(name))
            break

    return found


def write(result, packages):
    fd = os.open(result, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, 'w') as f:
        json.dump({'packages': [{'name': name, 'version': version}
                                for name, version in packages]}, f)


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
