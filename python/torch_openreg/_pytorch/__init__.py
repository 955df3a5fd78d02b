"""Adapts PyTorch's Python code to the device. `patches` lists all changes; those of the compiler are in `compile`."""
