"""Reading what people keep their servers in: scripts, images, manifests, recipes. `read` is where to start."""
