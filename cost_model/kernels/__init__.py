"""Seconds of single kernels, one file per kind, broadcasting over every argument."""
