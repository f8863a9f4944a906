"""For processes that multiprocessing starts in a program that uses `headrace.compat`."""

import importlib
import sys

import headrace.compat

headrace.compat.install(force=True)
sys.modules[__name__] = importlib.import_module(f"headrace.compat.{__name__}")
