"""What of a run is saved (`state`) and where it lies, whole or not at all (`store`). Only `state` imports torch."""
