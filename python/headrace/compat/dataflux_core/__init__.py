"""``dataflux_core`` on headrace: listing and downloading, without the datasets."""

from headrace.compat.dataflux_core import download, fast_list, range_splitter, user_agent

__all__ = ["download", "fast_list", "range_splitter", "user_agent"]
