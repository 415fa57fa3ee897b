"""Why a gang does not run, or why it restarted: what is answered by `gangctl why`.

`answer.py` puts it together; each other file answers one question.
"""
