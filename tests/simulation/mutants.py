"""Mutants: deliberate mistakes, as small patches of the source. The tests must catch each of them."""

from __future__ import annotations

from tests.simulation import (
    mutants_of_checkpoints,
    mutants_of_core,
    mutants_of_fencing,
    mutants_of_hub,
    mutants_of_machine,
    mutants_of_nodes,
    mutants_of_parking,
    mutants_of_policy,
    mutants_of_queueing,
    mutants_of_restarts,
    mutants_of_rolling,
    mutants_of_silence,
    mutants_of_starts,
    mutants_of_warm_starts,
)

MUTANTS = (
    *mutants_of_core.MUTANTS,
    *mutants_of_checkpoints.MUTANTS,
    *mutants_of_restarts.MUTANTS,
    *mutants_of_policy.MUTANTS,
    *mutants_of_queueing.MUTANTS,
    *mutants_of_rolling.MUTANTS,
    *mutants_of_silence.MUTANTS,
    *mutants_of_nodes.MUTANTS,
    *mutants_of_starts.MUTANTS,
    *mutants_of_fencing.MUTANTS,
    *mutants_of_machine.MUTANTS,
    *mutants_of_parking.MUTANTS,
    *mutants_of_hub.MUTANTS,
    *mutants_of_warm_starts.MUTANTS,
)
