"""written elsewhere"""
from __future__ import annotations
if 1:
	text = """a
b"""

class A:
	pass
print(repr(text), A.__name__)
