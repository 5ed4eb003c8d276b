"""The transformations and predicates between a plugin and the converters"""
