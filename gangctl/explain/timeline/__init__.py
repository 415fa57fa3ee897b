"""The timeline of a gang, pure: attempts as bars, incidents with their phases, members, lost work and goodput.

``telling.timeline`` makes it of a GangJob, ``svg.drawn`` draws it, ``document.svg`` and ``document.page`` make files.
"""
