"""Write MAP.md: each file of the product with the first line of its docstring, by folder (``make generate``)."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("gangctl", "sidecar/gangsidecar", "client/gangclient")
HEAD = """\
# Map

Each file of the product and what it does: the first line of its docstring. `make generate` writes this page.
[AGENTS.md](AGENTS.md) says which folder answers which question.
"""


def first_line(path: Path) -> str:
    """The first line of a module's docstring; empty if it has none."""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


def written() -> str:
    """MAP.md as it should be."""
    parts = [HEAD]
    for package in PACKAGES:
        for folder in sorted({path.parent for path in (ROOT / package).rglob("*.py")}):
            files = sorted(folder.glob("*.py"))
            about = next((first_line(one) for one in files if one.name == "__init__.py"), "")
            rows = [f"- `{one.name}`: {first_line(one)}" for one in files if one.name != "__init__.py"]
            parts.append(
                "\n".join(filter(None, [f"## `{folder.relative_to(ROOT)}/`\n", f"{about}\n" * bool(about), *rows]))
            )
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


if __name__ == "__main__":
    (ROOT / "MAP.md").write_text(written())
