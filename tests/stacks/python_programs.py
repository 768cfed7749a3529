"""Makes Python programs that wait in known places: chains of calls of every kind, in several threads."""

import re

# Each form calls `deeper(level)` at some level of a chain, and `{n}` is the number of the form in its program. The
# forms are valid from Python 3.8 on.
FORMS = [
    """
def plain_{n}(level):
    return deeper(level)
""",
    """
def recursive_{n}(level, depth=20):
    if depth:
        return recursive_{n}(
            level,
            depth - 1)
    return deeper(level)
""",
    """
def generator_{n}(level):
    def items():
        for item in inner():
            yield item

    def inner():
        yield from (deeper(level) for _ in range(2))

    for found in items():
        return found
""",
    """
def coroutine_{n}(level):
    async def inner():
        return deeper(level)

    async def outer():
        value = await inner()
        return value

    try:
        outer().send(None)
    except StopIteration as end:
        return end.value
""",
    """
def event_loop_{n}(level):
    async def inner():
        await asyncio.sleep(0)
        return deeper(level)

    return asyncio.run(inner())
""",
    """
def callback_of_c_{n}(level):
    return sorted([2, 1], key=lambda item: deeper(level) and item)
""",
    """
def map_{n}(level):
    return list(map(lambda item: functools.reduce(lambda a, b: deeper(level), [item, 1, 2]), [1]))
""",
    """
def wrapped_{n}(function):
    @functools.wraps(function)
    def wrapper(*arguments, **options):
        return function(*arguments, **options)
    return wrapper


@wrapped_{n}
@functools.lru_cache(maxsize=None)
@wrapped_{n}
def decorated_{n}(level):
    return deeper(level)
""",
    """
def exception_{n}(level):
    try:
        try:
            raise KeyError(level)
        except KeyError:
            return deeper(level)
        finally:
            level += 1
    except ValueError:
        return None
""",
    """
def finally_{n}(level):
    try:
        return level
    finally:
        deeper(level)
""",
    """
class Class_{n}:
    class Inner:
        @staticmethod
        def static(level):
            return deeper(level)

        @classmethod
        def of_class(cls, level):
            return cls.static(level)

    @property
    def value(self):
        return self.Inner.of_class(self.level)

    def __init__(self, level):
        self.level = level
        self.result = self.value


def class_{n}(level):
    return Class_{n}(level).result
""",
    """
def class_body_{n}(level):
    class Body:
        result = deeper(level)
    return Body.result
""",
    """
class Manager_{n}:
    def __init__(self, level):
        self.level = level

    def __enter__(self):
        return deeper(self.level)

    def __exit__(self, *what):
        return None


def with_{n}(level):
    with Manager_{n}(level) as result:
        return result
""",
    """
def comprehension_{n}(level):
    return [[deeper(level) for _ in range(1)]
            for _ in range(1)]
""",
    """
def executed_{n}(level):
    names = {{"deeper": deeper, "level": level}}
    exec(compile("\\n\\nresult = (\\n  deeper(level))", "<made at run time>", "exec"), names)
    return names["result"]
""",
    """
def größe_{n}(level):
    return (0 or
            deeper(
                level))
""",
    """
def argument_{n}(level):
    return max(1,
               2, *[deeper(level)],

               key=lambda item: 0)
""",
    """
class Comparable_{n}:
    def __init__(self, level):
        self.level = level

    def __lt__(self, other):
        return deeper(self.level)


def compare_{n}(level):
    return Comparable_{n}(level) < Comparable_{n}(level)
""",
]

WAITS = ["time.sleep(1000)", "LOCK.acquire()", "os.read(PIPE[0], 1)", "threading.Event().wait()",
         "select.select([PIPE[0]], [], [])", "SOCKETS[0].recv(1)"]

HEAD = """# coding: utf-8
import asyncio
import functools
import os
import select
import socket
import sys
import threading
import time

sys.setrecursionlimit(100000)
LOCK = threading.Lock()
LOCK.acquire()
PIPE = os.pipe()
SOCKETS = socket.socketpair()
HERE = threading.local()
READY = []


def deeper(level):
    chain = HERE.chain
    if level < len(chain):
        return chain[level](level + 1)
    return HERE.last()
"""

TAIL = """

def run(chain, last):
    HERE.chain = chain
    HERE.last = last
    deeper(0)


def program():
    threads = [threading.Thread(target=run, args=work, daemon=True) for work in WORK[1:]]
    for thread in threads:
        thread.start()
    run(*WORK[0])


program()
"""


def write_program(random, threads, longest):
    """Returns the text of a program with this number of threads. Each thread first prints a line to stdout and then
    waits."""
    text = HEAD
    names = []
    for number, form in enumerate(random.sample(FORMS, k=len(FORMS))):
        text += "\n" * random.choice([1, 1, 2, 200]) + form.format(n=number)
        names.append(re.search(r"(?m)^def (\w+)\(level", form.format(n=number)).group(1))
    for number, wait in enumerate(random.choices(WAITS, k=threads)):
        text += f"\n\ndef last_{number}():\n" + "    x = 1\n" * random.choice([0, 1, 150])
        text += f"    os.write(1, b'waits\\n')\n    return {wait}\n"
    text += "\n\nWORK = [\n"
    for number in range(threads):
        chain = random.choices(names, k=random.randint(0, longest))
        loops = [name for name in chain if name.startswith("event_loop")]
        for name in loops[1:]:  # event loops cannot be nested
            chain.remove(name)
        text += f"    ([{', '.join(chain)}], last_{number}),\n"
    return text + "]\n" + TAIL
