"""The version, as a literal: `trainer --version` reads no metadata."""

VERSION = "0.1.0"
