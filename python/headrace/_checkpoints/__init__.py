"""What stores hold of checkpoints, without torch: names, manifests, what is left over."""
