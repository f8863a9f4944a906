"""safetensors: files of tensors behind a header of JSON, one or several with an index.

- `header`: the header as bytes and back, checked; no I/O
- `dtypes`: its names of dtypes, and torch's
- `files`: the headers of one or several files in a store
- `reader`: tensors and slices, straight into memory; `load`
- `saving`: one file, or several and then their index
"""

from headrace.checkpoint._safetensors.files import find, is_part_name, is_safetensors_name, just
from headrace.checkpoint._safetensors.reader import SafetensorsReader, load_tensors
from headrace.checkpoint._safetensors.saving import save_tensors

__all__ = [
    "SafetensorsReader",
    "find",
    "is_part_name",
    "is_safetensors_name",
    "just",
    "load_tensors",
    "save_tensors",
]
