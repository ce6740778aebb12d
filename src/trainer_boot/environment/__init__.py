"""The environment that the file was locked with: is it here (checking, contents, hashing), make it (creating, packing),
keep several in a store (store, profile, pruning), start in it (entering).

Nothing of it is imported by a start that has what it needs. Everything that a user can mend is a `Refused`.
"""
