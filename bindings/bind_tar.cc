// The members of tars that Python holds.
#include <nanobind/nanobind.h>

#include <string>

#include "bind.h"
#include "convert.h"
#include "errors.h"
#include "headrace/dataset/tar_members.h"
#include "waiting.h"

namespace headrace::python {
namespace {

// As the headers of a tar have it.
char letter_of(TarType type) {
  switch (type) {
    case TarType::kFile: return '0';
    case TarType::kHardLink: return '1';
    case TarType::kSymLink: return '2';
    case TarType::kCharacterDevice: return '3';
    case TarType::kBlockDevice: return '4';
    case TarType::kDirectory: return '5';
    case TarType::kPipe: return '6';
    case TarType::kOther: return '?';
  }
  return '?';
}

nb::tuple members_of(nb::handle archive) {
  const HeldBuffer buffer(archive, /*writable=*/false);
  const std::vector<TarMember> members =
      value_or_raise(without_gil([&buffer](MayBlock) { return tar_members(buffer.bytes()); }));
  nb::list names, begins, ends;
  nb::dict links, sparse;
  std::string types;
  for (size_t i = 0; i < members.size(); ++i) {
    const TarMember& member = members[i];
    names.append(to_str(member.name));
    types.push_back(letter_of(member.type));
    if (member.type == TarType::kHardLink || member.type == TarType::kSymLink) {
      links[nb::int_(i)] = to_str(member.link_name);
    }
    begins.append(member.data_offset);
    ends.append(member.data_offset + member.size_bytes);
    if (!member.is_sparse) continue;
    nb::list parts;
    for (const ByteRange& part : member.parts) parts.append(nb::make_tuple(part.begin, part.end));
    sparse[nb::int_(i)] = parts;
  }
  return nb::make_tuple(names, types, links, begins, ends, sparse);
}

}  // namespace

void bind_tar(Module& module) { module.def("tar_members", &members_of, "archive"_a); }

}  // namespace headrace::python
