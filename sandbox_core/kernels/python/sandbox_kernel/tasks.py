"""Top-level await: one event loop, which is kept from cell to cell."""

import asyncio
import sys

from .core import COROUTINE


def current(kernel):
    """Cells find it as the loop of their thread."""
    if kernel.loop is not None and not kernel.loop.is_closed():
        asyncio.set_event_loop(kernel.loop)


async def evaluate(kernel, body, last):
    value = None

    for code in (body, last):
        if code is not None:
            value = eval(code, kernel.ns)
            if code.co_flags & COROUTINE:
                value = await value

    return value if last is not None else None


def run(kernel, body, last):
    if kernel.loop is None or kernel.loop.is_closed():
        kernel.loop = asyncio.new_event_loop()

    current(kernel)
    loop = kernel.loop
    task = loop.create_task(evaluate(kernel, body, last))

    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        # What was awaited ends as well, and may clean up.
        if not task.done():
            task.cancel()
            try:
                loop.run_until_complete(task)
            except asyncio.CancelledError:
                pass
        raise


def go_on(kernel):
    """Between cells: what a cell has started goes on, until a frame comes."""
    loop = kernel.loop

    if loop.is_closed() or not asyncio.all_tasks(loop):
        return

    fd = kernel.channel.fd
    loop.add_reader(fd, loop.stop)

    try:
        loop.run_forever()
    except Exception as e:
        print('event loop: %r' % e, file=sys.stderr)
    finally:
        loop.remove_reader(fd)
