"""The base of the configuration models: how their YAML is read, what holds for every value, the words of a refusal.

The only part of the contract that needs pydantic and PyYAML.
"""
