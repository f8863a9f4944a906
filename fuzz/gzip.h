// What zlib packs, for the fuzzers of decompressors.
#pragma once

#include <zlib.h>

#include <string>
#include <string_view>

#include "fuzz/check.h"

namespace headrace::fuzz {

inline std::string gzipped(std::string_view text, int level) {
  z_stream stream{};
  check(deflateInit2(&stream, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  check(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace headrace::fuzz
