"""safetensors: files of tensors behind a header of JSON, one or several with an index.

- `names`: what files, parts and indexes are called, also by others
- `header`: the header as bytes and back, checked; no I/O
- `dtypes`: its names of dtypes, and torch's
- `files`: the headers of one or several files in a store
- `reader`: tensors and slices, straight into memory; `load`
- `saving`: one file, or several and then their index

Public is what `headrace.checkpoint` does with it.
"""

from headrace.checkpoint._safetensors.files import find as find
from headrace.checkpoint._safetensors.files import just as just
from headrace.checkpoint._safetensors.files import read_index as read_index
from headrace.checkpoint._safetensors.names import is_index_name as is_index_name
from headrace.checkpoint._safetensors.names import is_part_of as is_part_of
from headrace.checkpoint._safetensors.names import is_safetensors_name as is_safetensors_name
from headrace.checkpoint._safetensors.names import single_name_of as single_name_of
from headrace.checkpoint._safetensors.names import without_part_number as without_part_number
from headrace.checkpoint._safetensors.reader import SafetensorsReader as SafetensorsReader
from headrace.checkpoint._safetensors.reader import load_tensors as load_tensors
from headrace.checkpoint._safetensors.saving import save_tensors as save_tensors
