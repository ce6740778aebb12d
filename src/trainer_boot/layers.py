"""The layers of a fast start, in the order in which they are put on. Each is a room of its own that can step aside."""

LAYERS = ("gc", "snapshot", "lazy", "overlays")

Note = dict[str, object]


def put_on(names: list[str], check: str = "fast") -> list[Note]:
    """Puts the named layers on, before torch is imported; a note each: layer, state (on, off, aside), why, and more."""
    notes: list[Note] = []
    for layer in LAYERS:
        if layer not in names:
            notes.append({"layer": layer, "state": "off", "why": "not asked for"})
        elif layer == "gc":
            from trainer_boot import collecting

            notes.append(collecting.pause())
        elif layer == "snapshot":
            from trainer_boot import snapshot

            notes.append(snapshot.serve(check))
        elif layer == "lazy":
            from trainer_boot import lazy

            notes.append(lazy.install(check))
        else:
            from trainer_boot import overlays

            notes.append(overlays.install())
    return notes


def take_off() -> None:
    """When everything is imported: collection goes on, and what was imported is no longer looked through."""
    from trainer_boot import collecting

    collecting.resume()
