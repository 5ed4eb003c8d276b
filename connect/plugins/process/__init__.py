"""Plugins in any language, as programs that speak the record protocol"""
