"""Plugins in virtual environments of their own, versions side by side"""
