"""For processes that multiprocessing starts in a program that uses `headrace.compat`."""

import importlib
import sys

import headrace.compat

headrace.compat.install(force=True)
# From now on the name leads to the installed SDK, or to headrace's package where there is none.
del sys.modules[__name__]
sys.modules[__name__] = importlib.import_module(__name__)
