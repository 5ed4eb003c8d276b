"""Plugins that ship with Tidemill: found by entry point, never imported"""
