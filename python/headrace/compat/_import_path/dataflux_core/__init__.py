"""Found by a process that multiprocessing has started in a program of `headrace.compat`."""

import importlib
import sys

import headrace.compat

headrace.compat.install(force=True)
sys.modules[__name__] = importlib.import_module(f"headrace.compat.{__name__}")
