"""A pytest plugin for tests on the accelerator openreg (torch_openreg). The hooks are in `plugin`."""
