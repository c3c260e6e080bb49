/*
 * For tests: an interpreter in a few lines of Python, whose code may use what
 * it speaks with, for better or for worse.
 */

#ifndef SBX_CODE_KERNEL_H
#define SBX_CODE_KERNEL_H


static const char  code_kernel[] =
    "import os, sys, socket, signal, time, threading, subprocess\n"
    "s = socket.socket(fileno=3)\n"
    "s.set_inheritable(False)\n"
    "f = s.makefile('rb')\n"
    "def field(name, v):\n"
    "    v = v if isinstance(v, bytes) else str(v).encode()\n"
    "    return name.encode() + b' %d\\n' % len(v) + v + b'\\n'\n"
    "def frame(kind, *fields):\n"
    "    b = b''.join(field(*x) for x in fields)\n"
    "    s.sendall(kind.encode() + b' %d\\n' % len(b) + b)\n"
    "def show(v):\n"
    "    frame('result', ('id', g['id']), ('main', 1), ('text/plain', v))\n"
    "def parse(b):\n"
    "    got = []\n"
    "    while b:\n"
    "        line, b = b.split(b'\\n', 1)\n"
    "        name, n = line.split()\n"
    "        got.append((name.decode(), b[:int(n)]))\n"
    "        b = b[int(n) + 1:]\n"
    "    return got\n"
    "def interrupt(*a):\n"
    "    if g['running']: raise KeyboardInterrupt\n"
    "g = dict(globals(), running=False, setups=[])\n"
    "g['g'] = g\n"
    "signal.signal(signal.SIGINT, interrupt)\n"
    "start = os.environ.get('KERNEL_START')\n"
    "if start: exec(start, g)\n"
    "frame('ready', ('version', '1'))\n"
    "while True:\n"
    "    line = f.readline()\n"
    "    if not line: break\n"
    "    kind, n = line.split()\n"
    "    got = parse(f.read(int(n)))\n"
    "    if kind == b'setup':\n"
    "        g['setups'].append(got)\n"
    "        frame('ready', ('version', '1'))\n"
    "        continue\n"
    "    id = dict(got)['id'].decode()\n"
    "    g.update(id=id, running=True, mute=False, code=0,\n"
    "             env=[v for k, v in got if k == 'env'])\n"
    "    try:\n"
    "        exec(dict(got)['code'], g)\n"
    "    except KeyboardInterrupt:\n"
    "        g['running'] = False\n"
    "        g['code'] = 130\n"
    "        frame('error', ('id', id), ('name', 'KeyboardInterrupt'),\n"
    "              ('value', ''), ('traceback', ''))\n"
    "    g['running'] = False\n"
    "    if not g['mute']:\n"
    "        frame('end', ('id', id), ('exit', g['code']))\n";


#endif
