"""dlio_benchmark, with data and checkpoints at URLs: `python -m headrace.dlio workload=unet3d`."""

from __future__ import annotations

from dlio_benchmark.main import main

from headrace.dlio import install

if __name__ == "__main__":
    install()
    main()
