"""The loops around a plugin, inside its task process"""
