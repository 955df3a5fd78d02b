"""Will it fit? Runs a program, and reports who holds the device's memory at the peak (docs/fits.md).

`command` is ``python -m torch_openreg fits``. It starts the program with the variable ``TORCH_OPENREG_FITS``, so each
process of the program that uses the device records its allocations (`recorder`, `modules`, `owners`), analyses them
when it ends (`log`, `analysis`, `kinds`) and writes a `report`. `context` does the same within a process. `text` and
`page` print reports. Nothing here is imported before it is used, and what starts programs needs no torch.
"""
