"""The layers of a fast start, in the order in which they are put on. Each is a room of its own that can step aside."""

LAYERS = ("gc", "snapshot", "prefetch", "libraries", "lazy", "overlays")

Note = dict[str, object]


def put_on(names: list[str], check: str = "fast", node_local: str = "auto") -> list[Note]:
    """Puts the named layers on, before torch is imported; a note each: layer, state (on, off, aside), why, and more."""
    notes: list[Note] = []
    for layer in LAYERS:
        if layer not in names:
            if layer == "snapshot":
                from trainer_boot import snapshot

                snapshot.pause()  # it may serve already
            notes.append({"layer": layer, "state": "off", "why": "not asked for"})
        elif layer == "gc":
            from trainer_boot import collecting

            notes.append(collecting.pause())
        elif layer == "snapshot":
            from trainer_boot import snapshot

            going_on = snapshot.going_on(node_local) if check == "fast" else None
            notes.append(going_on or snapshot.serve(check, node_local=node_local))
            snapshot.note_texts()
        elif layer == "prefetch":
            from trainer_boot import prefetch

            notes.append(prefetch.start())
        elif layer == "libraries":
            from trainer_boot import libraries

            notes.append(libraries.serve())
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
