"""The embedded model: how its text is gathered, how it is trained, exported and checked."""
