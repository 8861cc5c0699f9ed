"""How a spec is measured: the real llama-server, started and asked over loopback."""
