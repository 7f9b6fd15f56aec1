"""Detectors: find causes in observations. Pure: they use no clock, file or process."""
