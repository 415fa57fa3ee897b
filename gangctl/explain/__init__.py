"""What is told to people about gangs: why one waits, what a device pod lacks, what happened when. Pure.

It decides nothing: the controller never acts on what stands here. Values in, values out; the command line and the page
show them.
"""
