"""The base of all configuration models: reads their YAML, checks values, and explains errors in one sentence.

The only part of the contract that needs pydantic and PyYAML.
"""
