"""The GangJob API: types of the CRD, names and labels. Imports nothing of gangctl."""
