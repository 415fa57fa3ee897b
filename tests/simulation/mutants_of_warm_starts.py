"""Mutants of warm starts: what would make a fork differ from a start, or would let a process of it escape.

Templates and forks are real processes, so the tests of the supervisor are to catch these.
"""

from __future__ import annotations

from tests.simulation.mutant import one

SUPERVISOR = "sidecar/gangsidecar/supervisor/"
START = "sidecar/gangsidecar/start/"

MUTANTS = (
    one(
        "a forked worker runs before its supervisor knows it",
        START + "template.py",
        "            if receive(link)[0]:\n",
        "            if link:\n",
    ),
    one(
        "a template is killed with its worker's tree",
        SUPERVISOR + "warm_start.py",
        "        self._helpers.add(template.pid)\n",
        "        self._helpers.discard(template.pid)\n",
    ),
    one(
        "the next session does not know a template of the one before",
        SUPERVISOR + "template.py",
        "{**environment, **ONLY_TEMPLATE})",
        "{**environment, **ONLY_TEMPLATE, processes.MARK: ''})",
    ),
    one(
        "a template with two threads is forked",
        START + "obstacles.py",
        "    if len(threads) == 1:\n",
        "    if len(threads) <= 2:\n",
    ),
    one(
        "a template with an open device is forked",
        START + "obstacles.py",
        'return "" if path.startswith(NO_DEVICES) else f"has opened the device {path}"',
        'return ""',
    ),
    one(
        "a worker is forked though its device can't be used",
        START + "child.py",
        "    return _poisoned()\n",
        '    return ""\n',
    ),
    one(
        "forked workers have the same random states",
        START + "child.py",
        "    _seed()\n    _set_threads",
        "    _set_threads",
    ),
    one(
        "a module that has read the rank at import is forked",
        START + "variables.py",
        "template.get(name) != environment.get(name):",
        "template.get(name) == environment.get(name, name):",
    ),
    one(
        "a template whose files have changed is forked",
        START + "template.py",
        "            or obstacles.changed(self._versions)\n",
        "",
    ),
    one(
        "a file that hides a preloaded module is overlooked",
        START + "template.py",
        "            or obstacles.shadowed(Target.of(command).first_in_path, self._loaded)\n",
        "",
    ),
    one(
        "a template that the kernel has killed is taken for a worker",
        SUPERVISOR + "workers.py",
        "launch.without_one_oom_kill(main) for pid, main in self._mains.items()}",
        "main for pid, main in self._mains.items()}",
    ),
    one(
        "a template that does not answer is asked again",
        SUPERVISOR + "template.py",
        "        self.end(wrong, for_good=bool(self.blamed))\n",
        "",
    ),
)
