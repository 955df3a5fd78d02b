"""torch.compile: Dynamo's and AOTAutograd's graphs here, Inductor's kernels and programs in `inductor`.

Each module is imported only after a program has imported the part of PyTorch that it changes.
"""
