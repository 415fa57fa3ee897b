"""The story of a gang, made once from its status: attempts, incidents, phases, members, waits, cost and advice. Pure.

Terminal, picture, page, spans and JSON render it. The controller never acts on it.
"""
