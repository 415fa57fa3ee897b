"""Write the supervisor and the standard library that it needs as byte code, for main.c.

Usage: ``python3.13 -IS freeze.py CONFIG_C``, in the folder to write to. CONFIG_C is the ``config.c`` of the libpython
that is linked, and the interpreter is of the same version. It writes ``frozen.h``, ``frozen.S`` and ``inittab.h``.

The rule: ``modules.txt`` has what the supervisor imports, and what these import is found by importing it. A module in C
that libpython does not have ends the build: it must never be missed only when a supervisor runs.
"""

from __future__ import annotations

import json
import marshal
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

from gangsidecar import install  # noqa: E402 - it is found only now

IN_EVERY_PYTHON: Final = frozenset({"_imp", "_string", "_warnings", "builtins", "marshal", "sys"})
"""main.c names them: their functions have names of their own."""
PROBE: Final = """\
import sys
for name in sys.argv[1:]:
    __import__(name)
modules = sorted(sys.modules.items())
import json
from importlib.machinery import PathFinder
found = []
for name, module in modules:
    spec = module.__spec__
    file = getattr(module, "__file__", None)
    if spec is not None and spec.name != name:  # Another name of a module, which a file may have given to it.
        folders = getattr(sys.modules.get(name.rpartition(".")[0]), "__path__", None)
        spec = PathFinder.find_spec(name, folders) if folders else None
        file = spec and spec.origin
    if spec is not None and not module.__spec__.name.startswith("_frozen_importlib"):
        found.append([name, file, spec.submodule_search_locations is not None])
print(json.dumps(found))
"""
"""An interpreter of its own says what it has imported: this one has imported more."""
ENTRY: Final = """\
import sys
from gangsidecar.supervisor.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


class Module(NamedTuple):
    """A module that is frozen."""

    source: bytes
    is_package: bool


def listed() -> list[str]:
    """The names in ``modules.txt``."""
    lines = (HERE / "modules.txt").read_text(encoding="ascii").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def standard_library() -> tuple[dict[str, Module], set[str]]:
    """The modules in Python, and the names of those in C, that the listed modules are and import."""
    command = [sys.executable, "-IS", "-c", PROBE, *listed()]
    probe = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603 - our own words
    frozen: dict[str, Module] = {}
    built_in: set[str] = set()
    for name, file, is_package in json.loads(probe.stdout):
        if file is None or not file.endswith(".py"):
            built_in.add(name)
        else:
            frozen[name] = Module(Path(file).read_bytes(), is_package)
    return frozen, built_in


def ours() -> dict[str, Module]:
    """The supervisor's modules."""
    found = {"__main__": Module(ENTRY.encode(), is_package=False)}
    for path, source in install.sources().items():
        name = path[: -len(".py")].replace("/", ".")
        is_package = name.endswith(".__init__")
        found[name[: -len(".__init__")] if is_package else name] = Module(source, is_package)
    return found


def main(config: Path) -> None:
    """Write the three files."""
    library, built_in = standard_library()
    has = set(re.findall(r'\{"(\w+)", PyInit_', config.read_text(encoding="utf-8"))) | IN_EVERY_PYTHON
    if built_in - has:
        sys.exit(f"this libpython has no {', '.join(sorted(built_in - has))}")
    declarations, table, assembly = (
        [],
        [],
        ['.section .rodata\n.section .note.GNU-stack,"",%progbits\n.section .rodata\n'],
    )
    for number, (name, module) in enumerate(sorted({**library, **ours()}.items())):
        code = marshal.dumps(compile(module.source, f"<frozen {name}>", "exec", dont_inherit=True, optimize=2))
        Path(f"m{number}.bin").write_bytes(code)
        assembly.append(f'.balign 8\n.globl m{number}\nm{number}: .incbin "m{number}.bin"\n')
        declarations.append(f"extern const unsigned char m{number}[];\n")
        table.append(f'    {{"{name}", m{number}, {len(code)}, {int(module.is_package)}}},\n')
    Path("frozen.S").write_text("".join(assembly), encoding="ascii")
    Path("frozen.h").write_text(
        "".join([*declarations, "static const struct _frozen frozen[] = {\n", *table, "    {NULL, NULL, 0, 0}};\n"]),
        encoding="ascii",
    )
    linked = sorted(built_in - IN_EVERY_PYTHON)
    Path("inittab.h").write_text("".join(f"MODULE({name})\n" for name in linked), encoding="ascii")
    sys.stdout.write(f"{len(table)} modules are frozen; in C: {' '.join(linked)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
